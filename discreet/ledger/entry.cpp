#include "discreet/ledger/entry.h"

#include <algorithm>
#include <type_traits>

#include "discreet/base/error.h"
#include "discreet/base/json.h"
#include "discreet/base/text/utf8.h"

namespace discreet::ledger {
namespace {

using accounting::Adjacency;
using cbor::Value;

constexpr std::string_view kFormat = "discreet-ledger";
constexpr std::string_view kNames[] = {"header",  "policy",    "admission", "terms",
                                       "use",     "epoch_end", "refusals",  "withdrawal",
                                       "summary", "release",   "signed",    "deletion"};
static_assert(std::size(kNames) == std::variant_size_v<Entry>);
constexpr std::size_t kUseType = 4;

constexpr const char* kOperator = "ledger entry";

// One list of each entry's fields, in the order of its bytes; writer, reader and describer walk it.
template <class E, class T>
concept Is = std::same_as<std::remove_const_t<E>, T>;

void fields(auto&& v, Is<Header> auto& e) {
  v("schema", e.schema);
  v("origin", e.origin);
  v("accountant", e.accountant);
  v("delta_atto", e.delta);
  v("adjacency", e.adjacency);
  v("clip_norm_floor_nano", e.clip_floor);
  v("noise_multiplier_floor_nano", e.multiplier_floor);
  v("depth_profile_schema", e.depth_profile_schema);
  v("descriptor_schema", e.descriptor_schema);
  v("retention_seconds", e.retention);
  v("policy_hash", e.policy);
  v("public_key", e.key);
  v("steward_keys", e.stewards);
}
void fields(auto&& v, Is<Policy> auto& e) { v("policy", e.text); }
void fields(auto&& v, Is<Admission> auto& e) {
  v("contribution", e.number);
  v("descriptor_hash", e.descriptor);
  v("signature_hash", e.signature);
  v("class", e.admissibility_class);
  v("contributor", e.contributor);
  v("clip_norm_nano", e.clip);
  v("promise", e.promise);
  v("noise_multiplier_nano", e.multiplier);
  v("uses", e.uses);
  v("epsilon_micro", e.epsilon);
  v("not_after", e.not_after);
  v("adapter", e.adapter);
}
void fields(auto&& v, Is<Terms> auto& e) {
  v("run", e.run);
  v("epoch", e.epoch);
  v("as_of", e.as_of);
  v("class", e.admissibility_class);
  v("depth_profile", e.profile);
  v("family", e.family);
  v("noise_deviation_nano", e.deviation);
  v("grid_nano", e.grid);
  v("adjacency", e.adjacency);
  v("sampler", e.sampler);
  v("sampling_rate_pico", e.rate);
  v("batch", e.batch);
  v("population", e.population);
  v("steps", e.steps);
  v.unless_zero("planned_steps", e.planned_steps);
}
void fields(auto&& v, Is<Use> auto& e) {
  v("terms", e.terms);
  v("contribution", e.contribution);
  v("cumulative_epsilon_micro", e.spend);
}
void fields(auto&& v, Is<EpochEnd> auto& e) {
  v("run", e.run);
  v("epoch", e.epoch);
  v("uses", e.uses);
}
void fields(auto&& v, Is<Refusals> auto& e) { v("counts", e.counts); }
void fields(auto&& v, Is<Withdrawal> auto& e) {
  v("descriptor_hash", e.descriptor);
  v("reason", e.reason);
  v("time", e.time);
  v("public_key", e.key);
  v("signature", e.signature);
}
void fields(auto&& v, Is<ClassTotal> auto& e) {
  v("class", e.admissibility_class);
  v("contributions", e.contributions);
  v("uses", e.uses);
  v("most_spent_micro", e.most_spent);
}
void fields(auto&& v, Is<Summary> auto& e) {
  v("horizon", e.horizon);
  v("leaves", e.leaves);
  v("digest", e.digest);
  v("classes", e.classes);
}
void fields(auto&& v, Is<Release> auto& e) {
  v("run", e.run);
  v("manifest_hash", e.manifest);
}
void fields(auto&& v, Is<Signed> auto& e) { v("note_hash", e.note); }
void fields(auto&& v, Is<Deletion> auto& e) {
  v("model", e.model);
  v("number", e.number);
  v("time", e.time);
  v("commitment", e.commitment);
  v("engine", e.engine);
  v("promise", e.promise);
  v("epsilon_micro", e.epsilon);
  v("delta_atto", e.delta);
  v("residual_atto", e.residual);
  v("generation", e.generation);
  v("withdrawal", e.withdrawal);
}

template <class T>
Value to_value(const T& field) {
  if constexpr (std::is_enum_v<T>) {
    return static_cast<std::uint64_t>(field);
  } else {
    return field;
  }
}
template <class T>
Value to_value(const std::optional<T>& field) {
  return field ? Value(*field) : Value();
}
Value to_value(const std::vector<RawKey>& keys) { return cbor::array({keys.begin(), keys.end()}); }
Value to_value(const std::vector<std::pair<std::string, std::uint64_t>>& counts) {
  std::vector<Value> items;
  items.reserve(counts.size());
  for (const auto& [reason, count] : counts) items.push_back(cbor::array({reason, count}));
  return cbor::array(std::move(items));
}
Value to_value(const std::vector<ClassTotal>& classes);

struct Writer {
  std::vector<Value> items;
  void operator()(std::string_view, const auto& field) { items.push_back(to_value(field)); }
  void unless_zero(std::string_view, std::uint64_t field) {
    if (field != 0) items.push_back(field);
  }
};

Value to_value(const std::vector<ClassTotal>& classes) {
  std::vector<Value> items;
  for (const ClassTotal& total : classes) {
    Writer writer;
    fields(writer, total);
    items.push_back(cbor::array(std::move(writer.items)));
  }
  return cbor::array(std::move(items));
}

struct Reader {
  const std::vector<Value>& items;
  std::size_t at;

  const Value& next(std::string_view name) {
    if (at == items.size()) malformed(kOperator, "the field {} is missing", name);
    return items[at++];
  }
  void end() const {
    if (at != items.size()) malformed(kOperator, "there are more fields than the entry allows");
  }
  static void read(std::uint64_t& field, const Value& value) { field = value.as_unsigned(); }
  static void read(std::uint8_t& field, const Value& value) { field = small(value, 255); }
  static void read(Adjacency& field, const Value& value) { field = Adjacency{small(value, 2)}; }
  static void read(Promise& field, const Value& value) { field = Promise{small(value, 1)}; }
  static void read(Family& field, const Value& value) { field = Family{small(value, 4)}; }
  static void read(DeletionPromise& field, const Value& value) {
    field = DeletionPromise{small(value, 4)};
  }
  static void read(std::string& field, const Value& value) { field = value.as_text(); }
  static void read(Bytes& field, const Value& value) {
    field.assign(value.as_bytes().begin(), value.as_bytes().end());
  }
  template <std::size_t kSize>
  static void read(std::array<std::uint8_t, kSize>& field, const Value& value) {
    const ByteView bytes = value.as_bytes();
    if (bytes.size() != kSize)
      malformed(kOperator, "found {} bytes; expected {}", bytes.size(), kSize);
    std::copy(bytes.begin(), bytes.end(), field.begin());
  }
  template <class T>
  static void read(std::optional<T>& field, const Value& value) {
    if (!value.is_null()) read(field.emplace(), value);
  }
  static void read(std::vector<RawKey>& field, const Value& value) {
    for (const Value& item : value.as_array()) read(field.emplace_back(), item);
  }
  static void read(std::vector<std::pair<std::string, std::uint64_t>>& field, const Value& value) {
    for (const Value& item : value.as_array()) {
      if (item.as_array().size() != 2) malformed(kOperator, "a count must be [reason, number]");
      auto& [reason, count] = field.emplace_back();
      read(reason, item.as_array()[0]);
      read(count, item.as_array()[1]);
    }
  }
  static void read(std::vector<ClassTotal>& field, const Value& value) {
    for (const Value& item : value.as_array()) {
      Reader reader{item.as_array(), 0};
      fields(reader, field.emplace_back());
      reader.end();
    }
  }
  static std::uint8_t small(const Value& value, std::uint64_t most) {
    const std::uint64_t number = value.as_unsigned();
    if (number > most) malformed(kOperator, "{} is not a known code", number);
    return static_cast<std::uint8_t>(number);
  }
  void operator()(std::string_view name, auto& field) { read(field, next(name)); }
  void unless_zero(std::string_view name, std::uint64_t& field) {
    if (at == items.size()) return;
    read(field, next(name));
    if (field == 0) malformed(kOperator, "the field {} is 0", name);
  }
};

template <std::size_t kIndex = 0>
Entry read_entry(std::uint64_t type, Reader& reader) {
  if constexpr (kIndex == std::variant_size_v<Entry>) {
    malformed(kOperator, "{} is not a type of entry", type);
  } else {
    if (type != kIndex) return read_entry<kIndex + 1>(type, reader);
    std::variant_alternative_t<kIndex, Entry> entry;
    fields(reader, entry);
    return entry;
  }
}

// Reads one unsigned integer in its shortest form; false if it is something else.
bool read_unsigned(ByteView& in, std::uint64_t& number) {
  if (in.empty()) return false;
  const std::uint8_t head = in[0];
  if (head < 24) {
    number = head;
    in = in.subspan(1);
    return true;
  }
  if (head > 27) return false;
  const std::size_t width = std::size_t{1} << (head - 24);
  if (in.size() < 1 + width) return false;
  number = 0;
  for (std::size_t i = 1; i <= width; ++i) number = number << 8 | in[i];
  in = in.subspan(1 + width);
  return width == 1 ? number >= 24 : number >> (4 * width) != 0;
}

std::uint8_t* write_unsigned(std::uint64_t number, std::uint8_t* out) noexcept {
  if (number < 24) {
    *out++ = static_cast<std::uint8_t>(number);
    return out;
  }
  const int log_width = number < 1u << 8 ? 0 : number < 1u << 16 ? 1 : number >> 32 == 0 ? 2 : 3;
  *out++ = static_cast<std::uint8_t>(24 + log_width);
  for (int shift = 8 * (1 << log_width) - 8; shift >= 0; shift -= 8)
    *out++ = static_cast<std::uint8_t>(number >> shift);
  return out;
}

// By far most leaves are uses: [4, terms, contribution, spend], read without allocation.
bool read_use(ByteView in, Use& use) {
  if (in.size() < 5 || in[0] != 0x84 || in[1] != kUseType) return false;
  in = in.subspan(2);
  return read_unsigned(in, use.terms) && read_unsigned(in, use.contribution) &&
         read_unsigned(in, use.spend) && in.empty();
}

std::string_view to_string(Promise promise) {
  return promise == Promise::kWorstCase ? "worst_case" : "amplified";
}
std::string_view to_string(DeletionPromise promise) {
  constexpr std::string_view kPromises[] = {"not certified", "per-record", "set-level",
                                            "transcript", "exact"};
  return kPromises[static_cast<std::size_t>(promise)];
}
std::string_view to_string(Family family) {
  constexpr std::string_view kFamilies[] = {"gaussian", "rounded_gaussian", "laplace",
                                            "discrete_gaussian", "skellam"};
  return kFamilies[static_cast<std::size_t>(family)];
}

struct Describer {
  std::vector<cbor::Entry> entries;
  void operator()(std::string_view name, const auto& field) {
    entries.push_back({name, to_value(field)});
  }
  void unless_zero(std::string_view name, std::uint64_t field) {
    if (field != 0) entries.push_back({name, field});
  }
  void operator()(std::string_view name, Adjacency field) {
    entries.push_back({name, accounting::to_string(field)});
  }
  void operator()(std::string_view name, Promise field) {
    entries.push_back({name, to_string(field)});
  }
  void operator()(std::string_view name, DeletionPromise field) {
    entries.push_back({name, to_string(field)});
  }
  void operator()(std::string_view name, Family field) {
    entries.push_back({name, to_string(field)});
  }
  void operator()(std::string_view name, std::uint8_t sampler) {
    constexpr std::string_view kSamplers[] = {"none",       "poisson",        "truncated_poisson",
                                              "fixed_size", "balls_and_bins", "shuffled_epoch"};
    entries.push_back({name, sampler < 6 ? kSamplers[sampler] : "unknown"});
  }
  // A profile is shown decoded, if JSON can represent it.
  void operator()(std::string_view name, const Bytes& field) {
    if (name == "depth_profile") {
      try {
        const Value profile = cbor::decode(field);
        static_cast<void>(to_json(profile));
        entries.push_back({name, profile});
        return;
      } catch (const Error&) {
      }
    }
    entries.push_back({name, field});
  }
  void operator()(std::string_view name, const std::vector<ClassTotal>& classes) {
    std::vector<Value> items;
    for (const ClassTotal& total : classes) {
      Describer describer;
      fields(describer, total);
      items.push_back(cbor::map(std::move(describer.entries)));
    }
    entries.push_back({name, cbor::array(std::move(items))});
  }
};

}  // namespace

std::string_view name(const Entry& entry) noexcept { return kNames[entry.index()]; }

std::size_t encode_use(const Use& use, std::uint8_t* out) noexcept {
  std::uint8_t* at = out;
  *at++ = 0x84;
  *at++ = kUseType;
  for (const std::uint64_t number : {use.terms, use.contribution, use.spend})
    at = write_unsigned(number, at);
  return static_cast<std::size_t>(at - out);
}

Bytes encode(const Entry& entry) {
  Writer writer;
  writer.items.push_back(entry.index());
  if (std::holds_alternative<Header>(entry)) writer.items.push_back(kFormat);
  std::visit([&](const auto& e) { fields(writer, e); }, entry);
  Bytes bytes = cbor::encode(cbor::array(std::move(writer.items)));
  if (bytes.size() > kMostLeafBytes)
    invalid_input(kOperator, "{} bytes are too many for one entry", bytes.size());
  return bytes;
}

Entry decode_entry(ByteView bytes) {
  Use use;
  if (read_use(bytes, use)) return use;
  if (bytes.size() > kMostLeafBytes) malformed(kOperator, "the entry is too long");
  try {
    const Value value = cbor::decode(bytes);
    const std::vector<Value>& items = value.as_array();
    if (items.empty()) malformed(kOperator, "the entry is empty");
    const std::uint64_t type = items[0].as_unsigned();
    Reader reader{items, 1};
    if (type == 0 && reader.next("format").as_text() != kFormat)
      malformed(kOperator, "the header is not that of a ledger");
    Entry entry = read_entry(type, reader);
    reader.end();
    return entry;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidInput) throw;
    malformed(kOperator, "{}", error.sentence());  // a field of another type
  }
}

cbor::Value describe(const Entry& entry) {
  Describer describer;
  describer.entries.push_back({"type", name(entry)});
  std::visit([&](const auto& e) { fields(describer, e); }, entry);
  if (const auto* terms = std::get_if<Terms>(&entry)) {
    const double deviation = static_cast<double>(terms->deviation) / kNano;
    describer.entries.push_back({"noise_variance", deviation * deviation});
  }
  return cbor::map(std::move(describer.entries));
}

Digest descriptor_hash(std::string_view text) {
  Digest digest;
  const bool is_hex = text.size() == 2 * digest.size() &&
                      text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
  if (!is_hex)
    invalid_input("descriptor hash",
                  "{} is not the hash of a descriptor: expected 64 hexadecimal digits",
                  excerpt(text));
  const Bytes bytes = from_hex(text);
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

Bytes withdrawal_statement(std::string_view origin, const Digest& descriptor,
                           std::string_view reason, std::uint64_t time) {
  return cbor::encode(cbor::array({"discreet-withdrawal-v1", origin, descriptor, reason, time}));
}

Digest deletion_commitment(ByteView salt, std::string_view subject,
                           std::span<const std::uint64_t> records) {
  return sha256(cbor::encode(cbor::array(
      {"discreet-deletion-v1", salt, subject, cbor::array({records.begin(), records.end()})})));
}

}  // namespace discreet::ledger
