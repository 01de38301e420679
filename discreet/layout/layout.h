#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/base/bytes.h"
#include "discreet/base/hash.h"

namespace discreet {

// The description of a model that clipping, routing, noise and the ledger share: its tensors, their
// order, and what each belongs to. It contains no weights and no types of a framework.

// A dimension of a tensor whose equal slices belong to different heads or experts.
struct Slices {
  std::uint32_t count;  // >= 1, divides the length of the dimension
  std::uint32_t axis;   // < number of dimensions
  friend bool operator==(const Slices&, const Slices&) = default;
};

struct Tensor {
  std::string name;                       // unique, dotted: "encoder.0.weight"
  std::vector<std::uint64_t> shape = {};  // row-major; empty is a scalar; a dimension may be 0
  std::string layer = {};                 // empty: the name up to its last dot
  std::string group = {};                 // empty: the layer
  bool trainable = true;
  bool is_public = false;    // part of a public module: receives no private gradient
  std::string adapter = {};  // the adapter (low-rank or prefix module) it belongs to; empty: none
  std::optional<Slices> heads = {};
  std::optional<Slices> experts = {};

  // The tensor receives the gradient of private records.
  bool is_private() const noexcept { return trainable && !is_public; }
  friend bool operator==(const Tensor&, const Tensor&) = default;
};

// Tensors in their global order: the index i of a tensor is its position, 0-based, < 2^40.
class ModelLayout {
 public:
  // Fills in empty layers and groups. Throws kInvalidInput, naming the tensor, for an empty or
  // repeated name, slices that do not divide their dimension, a size beyond 2^51, or more than 2^24
  // tensors. The list may be empty.
  explicit ModelLayout(std::vector<Tensor> tensors);

  std::span<const Tensor> tensors() const noexcept { return tensors_; }
  std::size_t size() const noexcept { return tensors_.size(); }
  // Number of elements of tensor i.
  std::uint64_t elements(std::size_t i) const { return elements_.at(i); }
  // The number of parameters of all tensors; of the trainable ones (model_scale of the
  // specification); and of those that receive private gradients.
  std::uint64_t parameters() const noexcept { return parameters_; }
  std::uint64_t trainable_parameters() const noexcept { return trainable_parameters_; }
  std::uint64_t private_parameters() const noexcept { return private_parameters_; }

  // The index of the tensor with this name; throws kInvalidInput, with the nearest name, if there
  // is none.
  std::size_t index_of(std::string_view name) const;

  // The same layout with the tensors of these modules and groups marked public. A module "a.b"
  // contains the tensor "a.b" and all tensors whose name starts with "a.b.". Throws
  // kInvalidDpConfig for a module or group without tensors: a misspelt name would spend privacy on
  // weights that should stay unchanged.
  ModelLayout with_public(std::span<const std::string> modules,
                          std::span<const std::string> groups = {}) const;

  // Deterministic CBOR: equal layouts have equal bytes; decode is strict (kMalformed).
  Bytes encode() const;
  static ModelLayout decode(ByteView bytes);
  // SHA-256 of encode().
  Digest hash() const;

  friend bool operator==(const ModelLayout&, const ModelLayout&) = default;

 private:
  std::vector<Tensor> tensors_;
  std::vector<std::uint64_t> elements_;
  std::uint64_t parameters_ = 0;
  std::uint64_t trainable_parameters_ = 0;
  std::uint64_t private_parameters_ = 0;
};

// How the private parameters are divided into parts, each with its own clip bound.
enum class Cut : std::uint8_t { kFlat, kLayer, kGroup, kTensor };

// Disjoint parts that cover all private tensors, in the order of their first tensor (the stable
// registration order of the specification).
struct Partition {
  static constexpr std::uint32_t kNone = 0xffffffff;

  std::vector<std::string> names;       // "all", or the names of the layers, groups or tensors
  std::vector<std::uint32_t> part_of;   // one per tensor of the layout; kNone: not private
  std::vector<std::uint64_t> elements;  // one per part: its number of coordinates d_g

  std::size_t parts() const noexcept { return names.size(); }
  friend bool operator==(const Partition&, const Partition&) = default;
};

Partition partition(const ModelLayout& layout, Cut cut);

}  // namespace discreet
