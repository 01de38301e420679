// The golden traces of the specification's VII.C. tests/golden/mechanism/README.md says how to
// write them again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "discreet/base/folder_testing.h"
#include "discreet/run/trace.h"
#include "tests/conformance/small_run.h"

namespace discreet::conformance {
namespace {

constexpr std::uint64_t kData = 7;
constexpr int kSteps = 3;

const std::vector<AccountantKind>& accountants() {
  static const std::vector<AccountantKind> kAll = {AccountantKind::kPld, AccountantKind::kMoments,
                                                   AccountantKind::kRdp, AccountantKind::kGdp,
                                                   AccountantKind::kFdp};
  return kAll;
}

const char* name_of(AccountantKind kind) {
  switch (kind) {
    case AccountantKind::kPld: return "pld";
    case AccountantKind::kMoments: return "moments";
    case AccountantKind::kRdp: return "rdp";
    case AccountantKind::kGdp: return "gdp";
    case AccountantKind::kFdp: return "f_dp";
  }
  return "";
}

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> kAll = {
      {"per_sample", [](DpConfig&) {}},
      {"per_group",
       [](DpConfig& dp) {
         dp.clip_strategy = ClipStrategy::kPerGroup;
         dp.privacy_allocation = AllocationMode::kCustom;
         dp.sigma_map = NumberMap{{"body", 1.0}, {"top", 2.0}};
       }},
      {"per_tensor",
       [](DpConfig& dp) {
         dp.clip_strategy = ClipStrategy::kPerTensor;
         dp.privacy_allocation = AllocationMode::kLayerWise;
       }},
      {"accumulation", [](DpConfig& dp) { dp.gradient_accumulation_steps = 2; }},
      {"fused",
       [](DpConfig& dp) {
         dp.clip_strategy = ClipStrategy::kPerLayer;
         dp.fused_kernel = true;
       },
       Form::kPasses},
      {"dynamic_scheduler",
       [](DpConfig& dp) {
         dp.mode = ScheduleMode::kDynamicProjection;
         dp.target_epsilon = 2;
         dp.noise_multiplier = 0.8;
       }},
      {"peft_targeted",
       [](DpConfig& dp) {
         dp.clip_strategy = ClipStrategy::kPeftTargeted;
         dp.public_modules = {"encoder", "head"};
       }},
      // The projection is above the target, and the noise is raised in advance.
      {"projection",
       [](DpConfig& dp) {
         dp.projection_policy = ProjectionPolicy::kUpscale;
         dp.target_epsilon = 2;
         dp.noise_multiplier = 0.6;
       }},
      // The safety warning, then the step that is not released.
      {"exhaustion",
       [](DpConfig& dp) {
         dp.declared_size = kRecords;  // all take part: epsilon grows fast
         dp.noise_multiplier = 4;
         dp.target_epsilon = 2.5;
         dp.safety_budget_reserve = 0.3;
       }},
  };
  return kAll;
}

Config config_of(const Scenario& scenario, AccountantKind accountant) {
  Config config = scenario.config();
  config.privacy.accountant = accountant;
  return config;
}

// Writes the trace of a run and returns the digest of all that it released.
Digest write_trace(const std::filesystem::path& path, const Scenario& scenario,
                   AccountantKind accountant) {
  Mechanism m = start(config_of(scenario, accountant));
  run::TraceWriter trace = run::TraceWriter::create(path, m.trace_header());
  const bool until_it_fails = scenario.name == std::string_view("exhaustion");
  std::vector<double> released;
  for (int t = 0; t < (until_it_fails ? 100 : kSteps); ++t) {
    try {
      const StepResult step = small_step(m, kData, scenario.form);
      trace.append("iter", trace_iter(step));
      for (const std::string& warning : step.warnings)
        trace.append("warning", cbor::map({{"t", step.t}, {"warning", warning}}));
      released.insert(released.end(), step.gradients.values().begin(),
                      step.gradients.values().end());
    } catch (const Error& error) {
      trace.append("failure", m.emit_error(error).to_cbor());
      break;
    }
  }
  trace.append("run_end", m.trace_end());
  return sha256(
      {reinterpret_cast<const std::uint8_t*>(released.data()), released.size() * sizeof(double)});
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string file_name(const Scenario& scenario, AccountantKind accountant) {
  return std::string(name_of(accountant)) + "-" + scenario.name + ".jsonl";
}

const std::filesystem::path kGolden = DISCREET_GOLDEN;

TEST(GoldenTrace, OfEveryAccountantAndScenarioIsReproducedInEveryByte) {
  const bool rewrite = std::getenv("DISCREET_REWRITE_GOLDEN") != nullptr;
  const Folder folder;
  std::string releases;
  std::set<std::string> expected = {"README.md", "releases.txt"};
  for (const AccountantKind accountant : accountants())
    for (const Scenario& scenario : scenarios()) {
      const std::string name = file_name(scenario, accountant);
      SCOPED_TRACE(name);
      expected.insert(name);
      const std::filesystem::path made = folder / name.c_str();
      releases += to_hex(write_trace(made, scenario, accountant)) + " " + name + "\n";
      run::verify_trace(made);
      if (rewrite)
        std::filesystem::copy_file(made, kGolden / name,
                                   std::filesystem::copy_options::overwrite_existing);
      EXPECT_EQ(text_of(made), text_of(kGolden / name));
    }
  if (rewrite) std::ofstream(kGolden / "releases.txt", std::ios::binary) << releases;
  EXPECT_EQ(releases, text_of(kGolden / "releases.txt"));
  for (const auto& entry : std::filesystem::directory_iterator(kGolden))
    EXPECT_TRUE(expected.contains(entry.path().filename().string())) << entry.path();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool is_kind(const std::string& line, const char* kind) {
  return line.find("\"kind\":\"" + std::string(kind) + "\"") != std::string::npos;
}

TEST(GoldenTrace, OfARunThatSpendsItsBudgetWarnsThenFailsThenEnds) {
  for (const AccountantKind accountant : accountants()) {
    const auto lines = lines_of(text_of(kGolden / file_name(scenarios().back(), accountant)));
    ASSERT_GE(lines.size(), 5u) << name_of(accountant);
    EXPECT_TRUE(is_kind(lines.front(), "run_header"));
    EXPECT_TRUE(is_kind(lines.back(), "run_end"));
    const std::string& failure = lines[lines.size() - 2];
    EXPECT_TRUE(is_kind(failure, "failure"));
    for (const char* field : {"\"failure_code\":\"PRIVACY_BUDGET_EXCEEDED\"",
                              "\"failure_operator\":\"Accountant.Update_v1\"",
                              "\"dp_replay_t\":", "\"state_fp_t\":", "\"t\":", "\"diagnostics\":"})
      EXPECT_NE(failure.find(field), std::string::npos) << field;
    const auto first = std::ranges::find_if(
        lines, [](const std::string& line) { return is_kind(line, "warning"); });
    ASSERT_NE(first, lines.end());
    EXPECT_NE(first->find("safety reserve"), std::string::npos);
    EXPECT_NE(lines.back().find("\"budget_status\":\"within_reserve\""), std::string::npos);
  }
}

// VII.C: PLD is no looser than moments under matched settings, nor than the other accountants.
TEST(GoldenTrace, OfPldIsNeverAboveThatOfTheOthersWhereTheScheduleIsTheSame) {
  for (const Scenario& scenario : scenarios()) {
    const Config config = config_of(scenario, AccountantKind::kPld);
    // Schedules that follow the accountant are not matched.
    if (config.privacy.mode != ScheduleMode::kFixed ||
        config.privacy.projection_policy != ProjectionPolicy::kAdvise)
      continue;
    SCOPED_TRACE(scenario.name);
    Mechanism pld = start(config);
    std::map<AccountantKind, Mechanism> others;
    for (const AccountantKind kind : accountants())
      if (kind != AccountantKind::kPld) {
        Config other = config_of(scenario, kind);
        other.privacy.target_epsilon = 20;  // whatever they need
        others.emplace(kind, start(other));
      }
    for (int t = 0; t < 3; ++t) {
      const double least = small_step(pld, kData, scenario.form).budget.after.upper;
      for (auto& [kind, other] : others) {
        const double epsilon = small_step(other, kData, scenario.form).budget.after.upper;
        // Without sampling gdp and f_dp have the same closed form, rounded otherwise.
        const bool is_exact = kind == AccountantKind::kGdp || kind == AccountantKind::kFdp;
        EXPECT_LE(least, is_exact ? epsilon * (1 + 1e-9) : epsilon)
            << name_of(kind) << " at step " << t;
      }
    }
  }
}

}  // namespace
}  // namespace discreet::conformance
