#pragma once

#include <cmath>
#include <filesystem>
#include <functional>
#include <string>

#include "discreet/base/bytes.h"
#include "discreet/base/cbor.h"
#include "discreet/base/files.h"
#include "discreet/config/config_read.h"
#include "discreet/config/config_resolve.h"
#include "discreet/config/prevalidation.h"
#include "discreet/run/trace.h"

// Run directories as training writes them, with synthetic numbers.
namespace discreet::report {

struct MadeUpRun {
  std::uint64_t planned = 60;
  std::uint64_t steps = 60;
  std::uint64_t steps_per_epoch = 10;
  double noise = 2;  // enough to spend less than the synthetic numbers say
  double target = 3;
  bool secure = true;
  // Added to the values that depend on the data, and to nothing else.
  double data = 0;
  std::string yaml = {};  // further lines of the configuration
  bool evaluations = true;
  // The last line: "completed" and so on; "" writes none; "mechanism" writes that of Apply_v3
  // alone.
  std::string ended = "completed";
  // Changes fields of a line before it is written.
  std::function<void(const std::string& kind, std::vector<cbor::Entry>&)> change = {};

  std::string config() const {
    return "security:\n  differential_privacy:\n    target_epsilon: " + std::to_string(target) +
           "\n    declared_size: 6000\n    effective_batch_size: 600\n    noise_multiplier: " +
           std::to_string(noise) + "\n    target_steps: " + std::to_string(planned) +
           "\n    secure: " + (secure ? "true" : "false") + "\n" + yaml;
  }

  double epsilon(std::uint64_t step) const {
    return 0.9 * target * std::sqrt(double(step) / double(planned));
  }

  void write(const std::filesystem::path& run) const {
    std::filesystem::create_directories(run);
    const Config resolved = load_config(config(), "config.yaml").config;
    write_atomically(run / "config.yaml", bytes_of(write_yaml(resolved)));
    const auto changed = [&](const std::string& kind, std::vector<cbor::Entry> fields) {
      if (change) change(kind, fields);
      return cbor::map(std::move(fields));
    };
    std::vector<cbor::Value> reasons;
    for (const std::string& each : not_private_reasons(resolved.privacy))
      reasons.emplace_back(each);
    run::TraceWriter trace = run::TraceWriter::create(
        run / "trace.jsonl",
        changed("run_header",
                {{"specification", "UML_OS.DifferentialPrivacy.Apply_v3 2026-02-18"},
                 {"config_hash", to_hex(config_hash(resolved))},
                 {"layout_hash", std::string(64, 'a')},
                 {"accounted_delta", resolved.privacy.target_delta},
                 {"allocation_map", cbor::map({{"body", cbor::array({1.5, 0.8})},
                                               {"head <1>", cbor::array({2.0, 0.6})}})},
                 {"not_private", cbor::array(std::move(reasons))}}));
    for (std::uint64_t t = 0; t < steps; ++t) {
      const double wave = std::sin(double(t) * 0.7) + data;
      trace.append("iter",
                   changed("iter", {{"t", t},
                                    {"cumulative_epsilon_before", epsilon(t)},
                                    {"cumulative_epsilon_after", epsilon(t + 1)},
                                    {"noise_scale_sigma", noise},
                                    {"effective_noise_multiplier", noise},
                                    {"norm_p50", 2 + 0.3 * wave},
                                    {"norm_p95", 4 + 0.8 * wave},
                                    {"norm_max", 9 + wave},
                                    {"clip_fraction", 0.6 + 0.1 * std::sin(data + double(t))},
                                    {"zeroed_records", std::uint64_t(data != 0)}}));
      if (evaluations && (t + 1) % steps_per_epoch == 0) {
        const double epoch = double((t + 1) / steps_per_epoch), far = 1 / (1 + epoch / 3);
        trace.append("evaluation", changed("evaluation", {{"t", t + 1},
                                                          {"epoch", (t + 1) / steps_per_epoch},
                                                          {"train_loss", 0.2 + 2 * far + data},
                                                          {"train_accuracy", 0.97 - 0.8 * far},
                                                          {"test_loss", 0.25 + 2 * far + data},
                                                          {"test_accuracy", 0.96 - 0.8 * far},
                                                          {"rate", 0.5}}));
      }
    }
    if (ended.empty()) return;
    const bool mechanism_alone = ended == "mechanism";
    std::vector<cbor::Entry> last = {
        {"t", steps}, {"delta", resolved.privacy.target_delta}, {"adjacency", "add_remove"}};
    const double upper = ended == "interrupted" ? epsilon(planned) : epsilon(steps);
    const cbor::Value interval = cbor::map({{"lower", epsilon(steps) * 0.999}, {"upper", upper}});
    last.push_back({mechanism_alone ? "final_epsilon" : "epsilon", interval});
    if (!mechanism_alone) {
      last.push_back({"steps", steps});
      last.push_back({"planned_steps", planned});
      last.push_back({"ended", ended});
      last.push_back({"accuracy", evaluations ? cbor::Value(0.9312 + data / 100) : nullptr});
    }
    trace.append("run_end", changed("run_end", std::move(last)));
  }
};

}  // namespace discreet::report
