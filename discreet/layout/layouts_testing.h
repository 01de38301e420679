#pragma once

#include <string>
#include <utility>
#include <vector>

#include "discreet/layout/layout.h"

// The shapes of three common models, for tests and benchmarks.
namespace discreet::testing {

inline void add_norm(std::vector<Tensor>& out, const std::string& name, std::uint64_t width) {
  out.push_back({.name = name + ".weight", .shape = {width}});
  out.push_back({.name = name + ".bias", .shape = {width}});
}

inline void add_dense(std::vector<Tensor>& out, const std::string& name, std::uint64_t to,
                      std::uint64_t from) {
  out.push_back({.name = name + ".weight", .shape = {to, from}});
  out.push_back({.name = name + ".bias", .shape = {to}});
}

// ResNet-18 for 1000 classes: 11,689,512 parameters.
inline ModelLayout resnet18() {
  std::vector<Tensor> out;
  const auto conv = [&](const std::string& name, std::uint64_t to, std::uint64_t from,
                        std::uint64_t kernel) {
    out.push_back({.name = name + ".weight", .shape = {to, from, kernel, kernel}});
  };
  conv("conv1", 64, 3, 7);
  add_norm(out, "bn1", 64);
  std::uint64_t from = 64;
  for (int stage = 1; stage <= 4; ++stage) {
    const std::uint64_t to = std::uint64_t{32} << stage;
    for (int block = 0; block < 2; ++block) {
      const std::string name = "layer" + std::to_string(stage) + "." + std::to_string(block);
      conv(name + ".conv1", to, from, 3);
      add_norm(out, name + ".bn1", to);
      conv(name + ".conv2", to, to, 3);
      add_norm(out, name + ".bn2", to);
      if (from != to) {
        conv(name + ".downsample.0", to, from, 1);
        add_norm(out, name + ".downsample.1", to);
      }
      from = to;
    }
  }
  add_dense(out, "fc", 1000, 512);
  return ModelLayout(std::move(out));
}

// BERT-base, uncased, with its pooler: 109,482,240 parameters.
inline ModelLayout bert_base() {
  std::vector<Tensor> out;
  const auto embedding = [&](const std::string& name, std::uint64_t rows) {
    out.push_back({.name = "embeddings." + name + ".weight", .shape = {rows, 768}});
  };
  embedding("word", 30522);
  embedding("position", 512);
  embedding("token_type", 2);
  add_norm(out, "embeddings.norm", 768);
  for (int i = 0; i < 12; ++i) {
    const std::string name = "encoder." + std::to_string(i);
    for (const char* part : {".query", ".key", ".value", ".output"})
      add_dense(out, name + ".attention" + part, 768, 768);
    add_norm(out, name + ".attention.norm", 768);
    add_dense(out, name + ".intermediate", 3072, 768);
    add_dense(out, name + ".output", 768, 3072);
    add_norm(out, name + ".norm", 768);
  }
  add_dense(out, "pooler", 768, 768);
  return ModelLayout(std::move(out));
}

// GPT-2 small, output tied to the embedding: 124,439,808 parameters.
inline ModelLayout gpt2_small() {
  std::vector<Tensor> out;
  out.push_back({.name = "wte.weight", .shape = {50257, 768}});
  out.push_back({.name = "wpe.weight", .shape = {1024, 768}});
  for (int i = 0; i < 12; ++i) {
    const std::string name = "h." + std::to_string(i);
    add_norm(out, name + ".ln_1", 768);
    add_dense(out, name + ".attn.c_attn", 2304, 768);
    add_dense(out, name + ".attn.c_proj", 768, 768);
    add_norm(out, name + ".ln_2", 768);
    add_dense(out, name + ".mlp.c_fc", 3072, 768);
    add_dense(out, name + ".mlp.c_proj", 768, 3072);
  }
  add_norm(out, "ln_f", 768);
  return ModelLayout(std::move(out));
}

}  // namespace discreet::testing
