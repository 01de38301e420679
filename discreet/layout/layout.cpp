#include "discreet/layout/layout.h"

#include <fmt/core.h>

#include <map>
#include <unordered_set>

#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "discreet/base/text/nearest.h"

namespace discreet {
namespace {

constexpr std::uint64_t kMostElements = std::uint64_t{1} << 51;  // indices of one random position
constexpr std::size_t kMostTensors = std::size_t{1} << 24;
constexpr const char* kOperator = "ModelLayout";

std::uint64_t elements_of(const Tensor& tensor) {
  std::uint64_t product = 1;
  for (const std::uint64_t length : tensor.shape) {
    if (length != 0 && product > kMostElements / length)
      invalid_input(kOperator, "tensor {} has more than 2^51 elements", tensor.name);
    product *= length;
  }
  return product;
}

void check_slices(const Tensor& tensor, const std::optional<Slices>& slices, const char* what) {
  if (!slices) return;
  if (slices->axis >= tensor.shape.size())
    invalid_input(kOperator, "tensor {} has {} dimensions, so its {} cannot lie along axis {}",
                  tensor.name, tensor.shape.size(), what, slices->axis);
  if (slices->count == 0 || tensor.shape[slices->axis] % slices->count != 0)
    invalid_input(kOperator, "tensor {}: {} {} do not divide dimension {} of length {}",
                  tensor.name, slices->count, what, slices->axis, tensor.shape[slices->axis]);
}

bool belongs_to(const std::string& tensor, const std::string& module) {
  return tensor == module || (tensor.size() > module.size() && tensor.starts_with(module) &&
                              tensor[module.size()] == '.');
}

cbor::Value slices_value(const std::optional<Slices>& slices) {
  if (!slices) return nullptr;
  return cbor::array({slices->count, slices->axis});
}

std::uint32_t small_number(const cbor::Value& value) {
  const std::uint64_t number = value.as_unsigned();
  if (number > 0xffffffff)
    malformed("ModelLayout::decode", "{} is not a valid number of slices or axis", number);
  return static_cast<std::uint32_t>(number);
}

std::optional<Slices> slices_from(const cbor::Value& value) {
  if (value.is_null()) return std::nullopt;
  const auto& pair = value.as_array();
  if (pair.size() != 2)
    malformed("ModelLayout::decode", "slices must have 2 numbers, found {}", pair.size());
  return Slices{small_number(pair[0]), small_number(pair[1])};
}

}  // namespace

ModelLayout::ModelLayout(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {
  if (tensors_.size() > kMostTensors)
    invalid_input(kOperator, "found {} tensors; at most 2^24 are supported", tensors_.size());
  std::unordered_set<std::string_view> names;
  elements_.reserve(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    Tensor& tensor = tensors_[i];
    if (tensor.name.empty()) invalid_input(kOperator, "tensor {} has no name", i);
    if (!names.insert(tensor.name).second)
      invalid_input(kOperator, "two tensors are named {}", tensor.name);
    if (tensor.layer.empty()) {
      const std::size_t dot = tensor.name.rfind('.');
      tensor.layer =
          dot == std::string::npos || dot == 0 ? tensor.name : tensor.name.substr(0, dot);
    }
    if (tensor.group.empty()) tensor.group = tensor.layer;
    check_slices(tensor, tensor.heads, "heads");
    check_slices(tensor, tensor.experts, "experts");
    const std::uint64_t elements = elements_of(tensor);
    if (elements > kMostElements - parameters_)
      invalid_input(kOperator, "the model has more than 2^51 parameters");
    elements_.push_back(elements);
    parameters_ += elements;
    if (tensor.trainable) trainable_parameters_ += elements;
    if (tensor.is_private()) private_parameters_ += elements;
  }
}

std::size_t ModelLayout::index_of(std::string_view name) const {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (tensors_[i].name == name) return i;
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const Tensor& tensor : tensors_) names.push_back(tensor.name);
  const auto meant = nearest(name, names);
  invalid_input(kOperator, "unknown tensor {}{}", name,
                meant ? fmt::format("; did you mean {}?", *meant) : std::string());
}

ModelLayout ModelLayout::with_public(std::span<const std::string> modules,
                                     std::span<const std::string> groups) const {
  std::vector<Tensor> tensors = tensors_;
  const auto publish = [&](const std::string& name, const char* key, auto belongs, auto place) {
    bool found = false;
    for (Tensor& tensor : tensors) {
      if (!belongs(tensor)) continue;
      tensor.is_public = true;
      found = true;
    }
    if (found) return;
    std::vector<std::string> places;
    for (const Tensor& tensor : tensors_) places.push_back(tensor.*place);
    const auto meant = nearest(name, places);
    invalid_config(kOperator, "{}: no tensor belongs to {}{}", key, name,
                   meant ? fmt::format("; did you mean {}?", *meant) : std::string());
  };
  for (const std::string& module : modules) {
    publish(
        module, "public_modules", [&](const Tensor& t) { return belongs_to(t.name, module); },
        &Tensor::layer);
  }
  for (const std::string& group : groups) {
    publish(
        group, "public_groups", [&](const Tensor& t) { return t.group == group; }, &Tensor::group);
  }
  return ModelLayout(std::move(tensors));
}

Bytes ModelLayout::encode() const {
  std::vector<cbor::Value> rows;
  rows.reserve(tensors_.size());
  for (const Tensor& t : tensors_) {
    std::vector<cbor::Value> shape(t.shape.begin(), t.shape.end());
    rows.push_back(cbor::map({{"name", t.name},
                              {"shape", cbor::array(std::move(shape))},
                              {"layer", t.layer},
                              {"group", t.group},
                              {"trainable", t.trainable},
                              {"public", t.is_public},
                              {"adapter", t.adapter},
                              {"heads", slices_value(t.heads)},
                              {"experts", slices_value(t.experts)}}));
  }
  return cbor::encode(cbor::array(std::move(rows)));
}

ModelLayout ModelLayout::decode(ByteView bytes) {
  const cbor::Value whole = cbor::decode(bytes);
  std::vector<Tensor> tensors;
  try {
    for (const cbor::Value& row : whole.as_array()) {
      Tensor t;
      t.name = row.at("name").as_text();
      for (const cbor::Value& length : row.at("shape").as_array())
        t.shape.push_back(length.as_unsigned());
      t.layer = row.at("layer").as_text();
      t.group = row.at("group").as_text();
      t.trainable = row.at("trainable").as_bool();
      t.is_public = row.at("public").as_bool();
      t.adapter = row.at("adapter").as_text();
      t.heads = slices_from(row.at("heads"));
      t.experts = slices_from(row.at("experts"));
      if (row.as_map().size() != 9)
        malformed("ModelLayout::decode", "tensor {} has unknown keys", t.name);
      tensors.push_back(std::move(t));
    }
    ModelLayout layout(std::move(tensors));
    if (layout.encode() != Bytes(bytes.begin(), bytes.end()))
      malformed("ModelLayout::decode", "a tensor has no layer or no group");
    return layout;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kMalformed) throw;
    malformed("ModelLayout::decode", "{}", error.sentence());
  }
}

Digest ModelLayout::hash() const { return sha256(encode()); }

Partition partition(const ModelLayout& layout, Cut cut) {
  Partition out;
  std::map<std::string_view, std::uint32_t> seen;
  for (std::size_t i = 0; i < layout.size(); ++i) {
    const Tensor& tensor = layout.tensors()[i];
    if (!tensor.is_private()) {
      out.part_of.push_back(Partition::kNone);
      continue;
    }
    static const std::string kAll = "all";
    const std::string& name = cut == Cut::kFlat    ? kAll
                              : cut == Cut::kLayer ? tensor.layer
                              : cut == Cut::kGroup ? tensor.group
                                                   : tensor.name;
    const auto [at, fresh] = seen.try_emplace(name, static_cast<std::uint32_t>(out.names.size()));
    if (fresh) {
      out.names.push_back(name);
      out.elements.push_back(0);
    }
    out.part_of.push_back(at->second);
    out.elements[at->second] += layout.elements(i);
  }
  return out;
}

}  // namespace discreet
