#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/contributions.h"
#include "cli/input.h"
#include "cli/numbers.h"
#include "cli/print.h"
#include "discreet/accounting/accountant.h"
#include "discreet/admission/resolver.h"
#include "discreet/base/error.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/config/config_table.h"

namespace discreet::cli {
namespace {

using namespace admission;

struct Options {
  std::string anchors, policy, layout, hash;
  std::string family{spelling(NoiseFamily::kGaussian)}, delta = "1e-5", grid = "0";
  bool json = false;
};

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidInput, "explain", sentence);
}

// A list of tensors: {"name", "shape", and as the layout has them "layer", "group", "trainable",
// "public", "adapter", "heads": [count, axis], "experts": [count, axis]}.
ModelLayout read_layout(const std::string& path) {
  const auto list = try_read_json(read_input(path));
  if (!list.is_array()) refuse(fmt::format("{} must be a JSON list of tensors", path));
  std::vector<Tensor> tensors;
  try {
    for (const auto& item : list) {
      Tensor t;
      for (const auto& [key, value] : item.items()) {
        const auto slices = [&value = value] {
          return Slices{value.at(0).get<std::uint32_t>(), value.at(1).get<std::uint32_t>()};
        };
        if (key == "name")
          t.name = value.get<std::string>();
        else if (key == "shape")
          t.shape = value.get<std::vector<std::uint64_t>>();
        else if (key == "layer")
          t.layer = value.get<std::string>();
        else if (key == "group")
          t.group = value.get<std::string>();
        else if (key == "trainable")
          t.trainable = value.get<bool>();
        else if (key == "public")
          t.is_public = value.get<bool>();
        else if (key == "adapter")
          t.adapter = value.get<std::string>();
        else if (key == "heads")
          t.heads = slices();
        else if (key == "experts")
          t.experts = slices();
        else
          refuse(fmt::format("{}: tensors have no member \"{}\"", path, key));
      }
      tensors.push_back(std::move(t));
    }
  } catch (const nlohmann::json::exception& error) {
    refuse(fmt::format("{}: tensor {}: {}", path, tensors.size(), error.what()));
  }
  return ModelLayout(std::move(tensors));
}

Bytes chosen(const Options& options) {
  const std::vector<Anchored> all = read_anchors(options.anchors);
  std::vector<Bytes> fitting;
  for (const Anchored& a : all)
    if (to_hex(admission::hash_of(a.contribution.descriptor)).starts_with(options.hash))
      fitting.push_back(a.contribution.descriptor);
  if (fitting.size() != 1)
    refuse(fmt::format("{} of {} descriptors in {} have a hash that begins with '{}'; give --hash",
                       fitting.size(), all.size(), options.anchors, options.hash));
  return fitting.front();
}

double gaussian_epsilon(double multiplier, double delta) {
  const auto accountant = accounting::make_accountant("pld");
  accountant->compose({accounting::Gaussian{multiplier}, accounting::NoSampling{},
                       accounting::Adjacency::kZeroOut});
  return accountant->epsilon(delta).epsilon.upper;
}

std::string_view multiplier_in_words(NoiseFamily family) {
  switch (family) {
    case NoiseFamily::kLaplace: return "√2 / log(Φ(x/2) / Φ(−x/2)) with x = 1 / (√k · z)";
    case NoiseFamily::kSkellam: return "least at which k uses diverge no more than the Gaussian";
    default: return "√k · z";
  }
}

NoiseFamily parse_family(const std::string& text) {
  const auto families = spellings(NoiseFamily{});
  return static_cast<NoiseFamily>(std::find(families.begin(), families.end(), text) -
                                  families.begin());
}

// A descriptor under a policy, and what it resolves to.
struct Explained {
  NoiseFamily family;
  Descriptor d;
  ClassPolicy c;
  std::string hash, policy_hash;
  bool modelled;
  ModelLayout layout;
  Resolution r;
  double delta, epsilon;
};

Explained resolved(const Options& options) {
  const NoiseFamily family = parse_family(options.family);
  Policy policy = read_policy(read_input(options.policy), options.policy);
  std::string policy_hash = to_hex(admission::hash_of(policy));
  const Bytes bytes = chosen(options);
  Descriptor d = decode_descriptor(bytes);
  const auto found = policy.classes.find(d.data_class);
  if (found == policy.classes.end())
    refuse(fmt::format("the policy has no class {}; the gate rejects it as UNKNOWN_CLASS",
                       d.data_class));
  ClassPolicy c = found->second;
  const bool modelled = !options.layout.empty();
  if (!modelled) {
    // The bound without the model: one tensor under the default noise.
    found->second.profile.where = WholeModel{};
    found->second.profile.heads.clear();
    found->second.profile.experts.clear();
    policy.blocks.clear();
  }
  ModelLayout layout =
      modelled ? read_layout(options.layout) : ModelLayout({{.name = "model", .shape = {1}}});
  Resolution r = resolve(policy, d, layout, {family, parse_number("--grid", options.grid)});
  const double delta =
      c.amplified ? c.amplified->delta.nearest() : parse_delta("--delta", options.delta);
  const double epsilon = c.amplified ? r.amplified_epsilon->upper
                                     : gaussian_epsilon(d.noise_multiplier.from_below(), delta);
  return {family,
          std::move(d),
          std::move(c),
          to_hex(admission::hash_of(bytes)),
          std::move(policy_hash),
          modelled,
          std::move(layout),
          std::move(r),
          delta,
          epsilon};
}

void print_json(const Explained& e, const std::string& family) {
  const auto& [_, d, c, hash, policy_hash, modelled, layout, r, delta, epsilon] = e;
  auto blocks = nlohmann::json::array();
  for (const auto& b : r.plan.blocks) {
    auto tensors = nlohmann::json::array();
    for (const auto& t : b.tensors) tensors.push_back(layout.tensors()[t.tensor].name);
    blocks.push_back(
        {{"name", b.name}, {"stddev", b.stddev}, {"clip", b.clip}, {"tensors", tensors}});
  }
  nlohmann::json out = {{"descriptor_hash", hash},
                        {"policy_hash", policy_hash},
                        {"contributor", d.contributor},
                        {"class", d.data_class},
                        {"clip_norm", d.clip_norm.nearest()},
                        {"noise_multiplier", d.noise_multiplier.nearest()},
                        {"occurrences", d.occurrences},
                        {"promise", c.amplified ? "amplified" : "every_pattern"},
                        {"required_multiplier", r.required_multiplier},
                        {"use_multiplier", r.use_multiplier},
                        {"most_uses", r.most_uses},
                        {"noise_family", family},
                        {"adjacency", "zero_out"},
                        {"profile", describe(c.profile)},
                        {"profile_schema", kProfileSchema},
                        {"blocks", std::move(blocks)}};
  if (r.renyi_rho)
    out["renyi_rho"] = *r.renyi_rho;
  else
    out.update({{"epsilon_upper", epsilon}, {"delta", delta}});
  if (modelled) {
    out["layers"] = r.layers;
    out["plan_hash"] = to_hex(hash_of(r.plan));
  }
  print("{}\n", out.dump());
}

void print_text(const Explained& e) {
  const auto& [family, d, c, hash, policy_hash, modelled, layout, r, delta, epsilon] = e;
  print("{}\n  of {}, class {}, under policy {}\n", hash, d.contributor, d.data_class, policy_hash);
  print("  C = {:<14} signed ({} · 10⁻⁹); class {} allows at most {}\n", d.clip_norm.to_text(),
        d.clip_norm.units, d.data_class, c.clip_norm.to_text());
  print("  z = {:<14} signed ({} · 10⁻⁹); class {} asks at least {}\n",
        d.noise_multiplier.to_text(), d.noise_multiplier.units, d.data_class,
        c.noise_multiplier.to_text());
  print("  k = {:<14} signed; class {} allows at most {}\n", d.occurrences, d.data_class,
        c.most_occurrences);
  if (c.amplified)
    print(
        "  m = {:<14.8g} least multiplier, rounded up, at which {} steps of Poisson sampling at {} "
        "cost no more\n"
        "      {:<14} epsilon at delta {} than one Gaussian release of multiplier z\n",
        r.required_multiplier, c.amplified->steps, c.amplified->rate.to_text(), "",
        c.amplified->delta.to_text());
  else
    print("  m = {:<14.8g} {}, rounded up: the multiplier of a use\n", r.required_multiplier,
          multiplier_in_words(family));
  for (const auto& b : r.plan.blocks)
    print("  s = {:<14.8g} policy, block {}\n  c = {:<14.8g} {}, rounded down\n", b.stddev, b.name,
          b.clip,
          r.plan.flat_clip ? "min(C, s / m) over the whole profile"
                           : "s · min(1 / (m √B), C / √Σs²)");
  print("  σ = {:<14.8g} multiplier of one use, rounded down; at least m\n", r.use_multiplier);
  print("  {} {} over all runs, reserved before use\n", r.most_uses,
        c.amplified ? "steps" : "uses");
  if (r.renyi_rho)
    print(
        "  together Rényi divergences of at most {} times the order, those of one Gaussian "
        "release; "
        "zero_out of this payload\n",
        brief_up(*r.renyi_rho));
  else
    print("  together epsilon ≤ {} at delta {}, zero_out of this payload\n", brief_up(epsilon),
          delta);
  print("  profile: {}{}\n", describe(c.profile),
        c.profile == sensitive_profile() && c.sensitive
            ? " (the upper 30%: the default of sensitive classes)"
            : "");
  if (modelled)
    print("  layers permitted: {} of {}: {}\n  plan {}\n", r.layers.size(), r.stack,
          fmt::format("{}", fmt::join(r.layers, " ")), to_hex(hash_of(r.plan)));
  else
    print("  give --layout to see which layers these are\n");
}

void run(const Options& options) {
  const Explained found = resolved(options);
  options.json ? print_json(found, options.family) : print_text(found);
}

}  // namespace

void add_explain(Command& command) {
  auto options = std::make_shared<Options>();
  command.argument("DESCRIPTOR", options->anchors, "Anchor file from 'attest'")
      .required()
      .reads_file();
  command.option("--policy", "FILE", options->policy, "Corpus policy (YAML)")
      .required()
      .reads_file();
  command.option("--layout", "FILE", options->layout, "Tensors of the model, a JSON list")
      .reads_file();
  command.option("--hash", "PREFIX", options->hash,
                 "Start of the descriptor's hash, if the file holds several");
  command.option("--delta", "DELTA", options->delta, "Delta of the epsilon that is shown");
  const auto families = spellings(NoiseFamily{});
  command.option("--noise", "FAMILY", options->family, "Family of the run's noise")
      .choices({families.begin(), families.end()});
  command.option("--grid", "STEP", options->grid, "Step of discrete noise, a power of two");
  command.json(options->json);
  command.action([options] { run(*options); });
}

}  // namespace discreet::cli
