#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/numbers.h"
#include "cli/print.h"
#include "discreet/admission/uses.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/run/run_files.h"
#include "discreet/run/trace.h"
#include "discreet/run/trace_seal.h"
#include "discreet/training/train.h"

namespace discreet::cli {
namespace {

namespace fs = std::filesystem;

// A folder that only this process reads, removed at its end.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "discreet-replay-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw Error(ErrorCode::kIoError, "replay", fmt::format("cannot make {}", name));
    path = name;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  fs::path path;
};

struct Options {
  std::string run, threads;
  bool json = false;
};

struct Replayed {
  std::uint64_t lines = 0, steps = 0;
  std::string environment;  // how it differs from that of the run; empty if it does not
  std::string difference;   // the first; empty if all is the same
};

// The header without the environment of the run, which may differ and still give the same bits.
nlohmann::json without_environment(nlohmann::json line, std::string& environment) {
  environment = line.value("environment", nlohmann::json()).dump();
  line.erase("environment");
  return line;
}

// Earlier versions did not write these: the digest of the model, whose bytes are compared below,
// and fields that follow from the others.
std::string as_written_before(const run::TraceLine& before, const run::TraceLine& now) {
  const auto was = read_json(before.text);
  auto line = read_json(now.text);
  for (const char* name :
       {"model_sha256", "delta_eps", "amplification_factor", "status", "failure_code"})
    if (!was.contains(name)) line.erase(name);
  return line.dump();
}

// A copy of the store of uses, under its own name: replay finds there what the run reserved, and
// leaves the store as it is. A store that is gone stays gone.
std::string copy_of_uses(const fs::path& store, const fs::path& folder) {
  const fs::path copy = folder / store.filename();
  if (fs::exists(store)) admission::UseStore(store).copy_to(copy);
  return copy.string();
}

Replayed replay(const fs::path& run, int threads) {
  Config config = run::read_config(run);
  if (config.privacy.secure && !fs::exists(run / "secret.key"))
    throw Error(ErrorCode::kInvalidInput, "replay",
                fmt::format("'{}' does not exist; a run repeats only under its key: put it back",
                            (run / "secret.key").string()));
  const std::vector<run::TraceLine> before = run::trace_lines(run / "trace.jsonl");
  std::uint64_t steps = 0;
  bool ended = false;
  for (const run::TraceLine& line : before) {
    if (line.kind == "resumed")
      throw Error(ErrorCode::kInvalidInput, "replay",
                  "the run was resumed in another environment, with fresh randomness, so it cannot "
                  "be replayed");
    if (line.kind == "iter") ++steps;
    ended = line.kind == "run_end";
  }
  Replayed out{before.size(), steps, {}, {}};
  try {  // another run's key would give other noise
    run::read_seal(run, config.privacy.secure, {});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kMalformed) throw;
    out.difference = error.sentence();
    return out;
  }
  const Scratch scratch, uses;
  if (config.corpus.uses) config.corpus.uses = copy_of_uses(*config.corpus.uses, uses.path);
  std::atomic<bool> stop = steps == 0;
  training::TrainOptions options;
  options.directory = scratch.path;
  options.resume = true;
  if (config.privacy.secure) options.secret = run / "secret.key";
  options.again = true;
  options.threads = threads;
  options.stop = &stop;
  options.progress = [&](const training::Progress& p) { stop = p.step >= steps; };
  training::train(config, options);

  const std::vector<run::TraceLine> now = run::trace_lines(scratch.path / "trace.jsonl");
  for (std::size_t i = 0; i < before.size() && out.difference.empty(); ++i) {
    if (i >= now.size()) {
      out.difference = fmt::format("trace line {} ({}) did not come again", i + 1, before[i].kind);
    } else if (i == 0) {
      std::string was, is;
      const auto a = without_environment(read_json(before[0].text), was);
      auto b = without_environment(read_json(now[0].text), is);
      // Earlier versions wrote the fused_kernel of the configuration, which config_hash covers.
      if (!a.contains("clip_operator")) {
        b.erase("clip_operator");
        b.erase("peft_stats");
        b["fused_kernel"] = a.value("fused_kernel", nlohmann::json());
      }
      // Nor did they write the digest of the contributions; their number is compared.
      if (a.contains("corpus") && !a["corpus"].contains("admitted_hash"))
        b["corpus"].erase("admitted_hash");
      if (was != is) out.environment = fmt::format("was {} and is {}", was, is);
      out.difference = run::difference(a.dump(), b.dump());
    } else {
      out.difference = run::difference(before[i].text, as_written_before(before[i], now[i]));
    }
    if (!out.difference.empty() && i < now.size())
      out.difference = fmt::format("trace line {} ({}): {}", i + 1, before[i].kind, out.difference);
  }
  if (out.difference.empty() && ended &&
      read_file(run / "model.safetensors", std::size_t{1} << 36) !=
          read_file(scratch.path / "model.safetensors", std::size_t{1} << 36))
    out.difference = "model.safetensors: its bytes are others";
  return out;
}

void print_json(const Replayed& out) {
  const auto text = [](const std::string& s) {
    return s.empty() ? nlohmann::json() : nlohmann::json(s);
  };
  print("{}\n", nlohmann::json{{"same", out.difference.empty()},
                               {"lines", out.lines},
                               {"steps", out.steps},
                               {"environment_difference", text(out.environment)},
                               {"first_difference", text(out.difference)}}
                    .dump());
}

void print_text(const Replayed& out) {
  if (!out.environment.empty()) print("note: the environment {}\n", out.environment);
  if (out.difference.empty())
    print("same: {} steps and the model repeat in every bit\n", out.steps);
  else
    print("different: {}\n", out.difference);
}

}  // namespace

void add_replay(Command& command) {
  auto options = std::make_shared<Options>();
  command.argument("RUN", options->run, "Directory of the run").required().reads_folder();
  command.option("--threads", "N", options->threads,
                 "Threads, which do not change the result; one per processor if not given");
  command.json(options->json);
  command.action([options] {
    const Replayed out = replay(options->run, parse_threads(options->threads));
    (options->json ? print_json : print_text)(out);
    return out.difference.empty() ? kDone : kCheckSaysNo;
  });
}

}  // namespace discreet::cli
