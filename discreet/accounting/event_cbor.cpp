#include <utility>

#include "discreet/accounting/event.h"
#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "discreet/base/text/utf8.h"

// An event is {"adjacency": name, "mechanism": {"type": name, ...}, "sampling": {"type": name,
// ...}}; numbers are floats, counts are integers. Fields keep their names for ever.
namespace discreet::accounting {
namespace {

using cbor::Value;

constexpr const char* kOperator = "decode_event";

// One description of each type's fields, read and written by two visitors.
template <class V, class M>
requires std::same_as<std::remove_const_t<M>, Gaussian>
void fields(V&& v, M& m) { v("noise_multiplier", m.noise_multiplier); }
template <class V, class M>
requires std::same_as<std::remove_const_t<M>, Group>
void fields(V&& v, M& m) {
  v("noise_multiplier", m.noise_multiplier);
  v("clip", m.clip);
}
template <class V, class M>
requires std::same_as<std::remove_const_t<M>, Adaptation>
void fields(V&& v, M& m) {
  v("counts", m.counts);
  v("deviation", m.deviation);
}
template <class V, class M>
requires std::same_as<std::remove_const_t<M>, GaussianGroups>
void fields(V&& v, M& m) {
  v("groups", m.groups);
  v("flat_clip", m.flat_clip);
  v("adaptation", m.adaptation);
}
template <class V, class M>
requires std::same_as<std::remove_const_t<M>, Laplace>
void fields(V&& v, M& m) { v("scale", m.scale); }
template <class V, class M>
requires std::same_as<std::remove_const_t<M>, DiscreteGaussian>
void fields(V&& v, M& m) {
  v("noise_multiplier", m.noise_multiplier);
  v("sensitivity", m.sensitivity);
}
template <class V, class M>
requires std::same_as<std::remove_const_t<M>, RoundedGaussian>
void fields(V&& v, M& m) { v("noise_multiplier", m.noise_multiplier); }
template <class V, class M>
requires std::same_as<std::remove_const_t<M>, Skellam>
void fields(V&& v, M& m) {
  v("variance", m.variance);
  v("l1", m.l1);
  v("l2", m.l2);
  v("linf", m.linf);
}
template <class V, class M>
requires std::same_as<std::remove_const_t<M>, Guarantee>
void fields(V&& v, M& m) {
  v("epsilon", m.epsilon);
  v("delta", m.delta);
}
template <class V, class M>
requires std::same_as<std::remove_const_t<M>, NoSampling>
void fields(V&&, M&) {}
template <class V, class M>
requires std::same_as<std::remove_const_t<M>, Poisson>
void fields(V&& v, M& m) { v("rate", m.rate); }
template <class V, class M>
requires std::same_as<std::remove_const_t<M>, TruncatedPoisson>
void fields(V&& v, M& m) {
  v("rate", m.rate);
  v("batch", m.batch);
  v("population", m.population);
}
template <class V, class M>
requires std::same_as<std::remove_const_t<M>, FixedSize>
void fields(V&& v, M& m) {
  v("batch", m.batch);
  v("population", m.population);
}
template <class V, class M>
requires std::same_as<std::remove_const_t<M>, BallsAndBins>
void fields(V&& v, M& m) { v("batches", m.batches); }
template <class V, class M>
requires std::same_as<std::remove_const_t<M>, ShuffledEpoch>
void fields(V&& v, M& m) { v("batches", m.batches); }

template <class M>
Value to_value(const M& object, std::string_view type);

struct Writer {
  std::vector<cbor::Entry> entries;
  void operator()(std::string_view key, double number) { entries.push_back({key, number}); }
  void operator()(std::string_view key, std::uint32_t number) { entries.push_back({key, number}); }
  void operator()(std::string_view key, std::uint64_t number) { entries.push_back({key, number}); }
  void operator()(std::string_view key, const std::optional<double>& number) {
    if (number) entries.push_back({key, *number});
  }
  void operator()(std::string_view key, const std::optional<Adaptation>& adaptation) {
    if (adaptation) entries.push_back({key, to_value(*adaptation, {})});
  }
  void operator()(std::string_view key, const std::vector<Group>& groups) {
    std::vector<Value> items;
    items.reserve(groups.size());
    for (const Group& group : groups) items.push_back(to_value(group, {}));
    entries.push_back({key, cbor::array(std::move(items))});
  }
};

template <class M>
Value to_value(const M& object, std::string_view type) {
  Writer writer;
  if (!type.empty()) writer.entries.push_back({"type", type});
  fields(writer, object);
  return cbor::map(std::move(writer.entries));
}

template <class M>
M from_value(const Value& value);

struct Reader {
  const Value& map;
  std::size_t read = 0;

  const Value& need(std::string_view key) {
    ++read;
    return map.at(key);
  }
  void operator()(std::string_view key, double& number) { number = need(key).as_float(); }
  void operator()(std::string_view key, std::uint64_t& number) { number = need(key).as_unsigned(); }
  void operator()(std::string_view key, std::uint32_t& number) {
    const std::uint64_t wide = need(key).as_unsigned();
    number = static_cast<std::uint32_t>(wide);
    if (number != wide) malformed(kOperator, "{} is {}, which is too large", key, wide);
  }
  void operator()(std::string_view key, std::optional<double>& number) {
    if (map.find(key)) number = need(key).as_float();
  }
  void operator()(std::string_view key, std::optional<Adaptation>& adaptation) {
    if (map.find(key)) adaptation = from_value<Adaptation>(need(key));
  }
  void operator()(std::string_view key, std::vector<Group>& groups) {
    for (const Value& item : need(key).as_array()) groups.push_back(from_value<Group>(item));
  }
};

template <class M>
M read_fields(const Value& value, std::size_t already) {
  M object{};
  Reader reader{value, already};
  fields(reader, object);
  if (reader.read != value.as_map().size()) malformed(kOperator, "a field is unknown");
  return object;
}

template <class M>
M from_value(const Value& value) {
  return read_fields<M>(value, 0);
}

template <class Variant, std::size_t kIndex = 0>
Variant read_variant(const Value& value, std::string_view type) {
  if constexpr (kIndex == std::variant_size_v<Variant>) {
    malformed(kOperator, "{} is not a known type", excerpt(type));
  } else {
    using Type = std::variant_alternative_t<kIndex, Variant>;
    if (name(Variant(std::in_place_index<kIndex>, Type{})) != type)
      return read_variant<Variant, kIndex + 1>(value, type);
    return read_fields<Type>(value, 1);
  }
}

Adjacency read_adjacency(std::string_view text) {
  for (const Adjacency a : {Adjacency::kAddRemove, Adjacency::kZeroOut, Adjacency::kReplaceOne})
    if (to_string(a) == text) return a;
  malformed(kOperator, "{} is not an adjacency", excerpt(text));
}

}  // namespace

Bytes encode(const Event& event) {
  const auto value = [](const auto& variant) {
    return std::visit([&](const auto& object) { return to_value(object, name(variant)); }, variant);
  };
  return cbor::encode(cbor::map({{"adjacency", to_string(event.adjacency())},
                                 {"mechanism", value(event.mechanism())},
                                 {"sampling", value(event.sampling())}}));
}

Event decode_event(ByteView bytes) {
  const Value value = cbor::decode(bytes);
  try {
    if (value.as_map().size() != 3) malformed(kOperator, "an event must have three fields");
    const Value& mechanism = value.at("mechanism");
    const Value& sampling = value.at("sampling");
    return Event(read_variant<Mechanism>(mechanism, mechanism.at("type").as_text()),
                 read_variant<Sampling>(sampling, sampling.at("type").as_text()),
                 read_adjacency(value.at("adjacency").as_text()));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidInput) throw;
    malformed(kOperator, "{}", error.sentence());  // a field is missing or of another type
  }
}

}  // namespace discreet::accounting
