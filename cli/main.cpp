#include <fmt/core.h>
#include <openssl/crypto.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.h"
#include "cli/print.h"
#include "discreet/discreet.h"

namespace discreet::cli {
namespace {

constexpr Command kCommands[] = {
    {"account", "Certified epsilon of a training schedule, or delta for an epsilon.",
     "discreet account --sampling-rate 0.01 --noise-multiplier 1 --steps 1000 --delta 1e-5\n"
     "  discreet account --sampling none --noise-multiplier 5 --steps 10 --epsilon 2 --json\n"
     "  discreet account --sampling balls_and_bins --batches-per-epoch 235 --steps 2350 "
     "--noise-multiplier 1.1 --delta 1e-5\n"
     "  discreet account --schedule schedule.jsonl --delta 1e-6",
     add_account},
    {"admit", "Which attested contributions a corpus policy admits, and why not the others.",
     "discreet admit policy.yaml anchors.jsonl\n"
     "  discreet admit policy.yaml anchors.jsonl --at 2026-11-16 --statements statements.jsonl "
     "--json",
     add_admit},
    {"attest", "Sign what a contribution is and the noise it is promised.",
     "discreet attest --key hospital.key --contributor patient-1 --class clinical --payload "
     "record.txt \\\n"
     "    --clip-norm 0.5 --noise-multiplier 1 --occurrences 20 --not-before 2026-01-01 "
     "--not-after 2027-01-01 --corpus clinic\n"
     "  discreet attest --key hospital.key --policy policy.yaml --batch rows.csv --out "
     "anchors.jsonl",
     add_attest},
    {"check", "Whether a configuration is valid, what it resolves to, and what it will spend.",
     "discreet check discreet.yaml\n"
     "  discreet check discreet.yaml --set noise_multiplier=1.2 --set clipping.norm=0.5 --json\n"
     "  discreet check discreet.yaml --resolved\n"
     "  discreet check --schema > discreet.schema.json",
     add_check},
    {"demo", "Train a private model of the embedded handwritten digits.",
     "discreet demo\n  discreet demo --out digits --threads 2 --json\n  discreet demo --governed",
     add_demo},
    {"explain", "How the noise and the layers of a contribution follow from its descriptor.",
     "discreet explain record.txt.anchor.jsonl --policy policy.yaml\n"
     "  discreet explain anchors.jsonl --policy policy.yaml --layout model.json --hash 3fa9 --json",
     add_explain},
    {"gate", "Whether a released model may answer a request.",
     "discreet gate RUN/release.json request.json --public-key release.pub --ledger ledger.db\n"
     "  discreet gate RUN/release.json --public-key release.pub",
     add_gate},
    {"init", "Write a commented configuration to start from.",
     "discreet init\n  discreet init train.yaml --preset regulated_fair", add_init},
    {"keygen", "Make a signing key, replace one, or revoke one.",
     "discreet keygen hospital\n"
     "  discreet keygen hospital-2 --rotate hospital.key --statements statements.jsonl\n"
     "  discreet keygen --revoke 00112233445566778899aabbccddeeff --key hospital.key "
     "--statements statements.jsonl",
     add_keygen},
    {"ledger", "Verify, read and prove a ledger: verify, show, prove, check, trace, export.",
     "discreet ledger verify ledger.db --public-key ledger.pub\n"
     "  discreet ledger show ledger.db --limit 5\n"
     "  discreet ledger export ledger.db --receipts receipts.jsonl --key ledger.key",
     add_ledger},
    {"operators", "Every operator of the specification and the function that is it.",
     "discreet operators\n  discreet operators --json", add_operators},
    {"plan", "The noise a privacy target needs, for each way to sample, and what else it costs.",
     "discreet plan --target-epsilon 3 --delta 1e-5 --dataset-size 60000 --batch-size 256 "
     "--epochs 60\n"
     "  discreet plan --target-epsilon 8 --delta 1e-6 --sampling-rate 0.01 --steps 2000 --json\n"
     "  discreet plan --target-epsilon 3 --delta 1e-5 --dataset-size 60000 --batch-size 256 "
     "--epochs 60 \\\n"
     "    --group-size 4 --plot epsilon.svg",
     add_plan},
    {"predict", "The predictions of a trained model, one line per record.",
     "discreet predict discreet-run new.csv\n  discreet predict discreet-run new.csv --json",
     add_predict},
    {"release", "Sign what a finished run's model is, who stands behind it and what it may serve.",
     "discreet release RUN --key release.key\n"
     "  discreet release RUN --key release.key --ledger-key ledger.key --scopes scopes.json "
     "--max-age-days 30",
     add_release},
    {"replay", "Execute a run again from configuration, data and key, and compare every bit.",
     "discreet replay discreet-run\n  discreet replay discreet-run --threads 2 --json", add_replay},
    {"report", "One HTML page about a run: its promise, its course, and what is not promised.",
     "discreet report RUN\n"
     "  discreet report RUN --public --out report.html\n"
     "  discreet report RUN --json",
     add_report},
    {"selfcheck", "Verify this build against published values and say what it can do.",
     "discreet selfcheck\n  discreet selfcheck --json", add_selfcheck},
    {"trace", "What happened in a run, step by step. Confidential.",
     "discreet trace discreet-run\n  discreet trace discreet-run --csv > steps.csv", add_trace},
    {"train", "Train a private model from a configuration; go on with --resume.",
     "discreet train discreet.yaml\n"
     "  discreet train discreet.yaml --out churn --set noise_multiplier=1.2 --threads 4\n"
     "  discreet train discreet.yaml --out churn --resume --json",
     add_train},
    {"unlearn", "A model whose records can be deleted, with receipts.",
     "discreet unlearn init churn --engine exact --dimension 54\n"
     "  discreet unlearn insert churn records.csv\n"
     "  discreet unlearn delete churn --subject alice --receipts receipts.jsonl\n"
     "  discreet unlearn publish churn\n"
     "  discreet unlearn verify churn",
     add_unlearn},
    {"withdraw", "Sign the withdrawal of a contribution, record signed ones, or verify a bundle.",
     "discreet withdraw HASH --origin example.com/corpus --key me.key --reason moved --events "
     "events.jsonl\n"
     "  discreet withdraw --ledger ledger.db --key ledger.key --events events.jsonl --bundles .\n"
     "  discreet withdraw --verify bundle.json --public-key ledger.pub",
     add_withdraw},
};

// Commands that verify a run: records that contradict themselves, their seal or the model are their
// "no".
bool verifies(std::string_view command) {
  return command == "release" || command == "report" || command == "trace";
}

int exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kPrivacyBudgetExceeded: return kCheckSaysNo;
    case ErrorCode::kIoError: return kMachineFailed;
    default: return kBadInput;
  }
}

int fail(std::string_view code, std::string_view sentence, int status) {
  print(stderr, "error: {}: {}\n", code, sentence);
  return status;
}

// CLI11 joins several sentences with newlines; an error of ours is one line.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

int run(int argc, char** argv) {
  int status = kDone;
  CLI::App app("discreet: private training you can prove.", "discreet");
  app.set_version_flag("--version", fmt::format("discreet {}", version()));
  app.require_subcommand(1);
  app.footer(
      "Run 'discreet COMMAND --help' for options and an example.\n"
      "Exit status: 0 done, 1 the check says no, 2 bad usage or input, 3 the machine failed.");
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.summary);
    sub->footer(fmt::format("Example:\n  {}", command.example));
    command.add(*sub, status);
  }
  try {
    app.parse(argc, argv);
  } catch (const Error& error) {
    const auto chosen = app.get_subcommands();
    if (error.code() != ErrorCode::kMalformed || chosen.empty() || !verifies(chosen[0]->get_name()))
      throw;
    return fail(to_string(error.code()), error.sentence(), kCheckSaysNo);
  } catch (const CLI::Success& asked_for_help_or_version) {
    return app.exit(asked_for_help_or_version);
  } catch (const CLI::ParseError& bad_usage) {
    const auto chosen = app.get_subcommands();
    return fail("INVALID_USAGE",
                fmt::format("{}; see 'discreet {}--help'", one_line(bad_usage.what()),
                            chosen.empty() ? "" : chosen[0]->get_name() + " "),
                kBadInput);
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return fail("IO_ERROR", "the output could not be written; is the disk full?", kMachineFailed);
  }
  return status;
}

// Unwinding would need memory too: destructors of JSON values take some. Every file is then as a
// kill leaves it.
[[noreturn]] void out_of_memory() {
  constexpr std::string_view kSentence = "error: IO_ERROR: out of memory\n";
  if (write(STDERR_FILENO, kSentence.data(), kSentence.size()) < 0) _exit(kMachineFailed);
  _exit(kMachineFailed);
}

// OpenSSL reports want of memory as a wrong signature, or a file without a key.
void* openssl_takes(std::size_t size, const char*, int) {
  void* taken = std::malloc(size);
  if (taken == nullptr && size > 0) out_of_memory();
  return taken;
}
void* openssl_resizes(void* old, std::size_t size, const char*, int) {
  void* taken = std::realloc(old, size);
  if (taken == nullptr && size > 0) out_of_memory();
  return taken;
}
void openssl_returns(void* taken, const char*, int) { std::free(taken); }

}  // namespace
}  // namespace discreet::cli

int main(int argc, char** argv) {
  using namespace discreet;
  // A core dump would hold keys and records.
  constexpr rlimit kNoCore{0, 0};
  setrlimit(RLIMIT_CORE, &kNoCore);
  std::set_new_handler(cli::out_of_memory);
  CRYPTO_set_mem_functions(cli::openssl_takes, cli::openssl_resizes, cli::openssl_returns);
  try {
    return cli::run(argc, argv);
  } catch (const Error& error) {
    return cli::fail(to_string(error.code()), error.sentence(), cli::exit_status(error.code()));
  } catch (const std::bad_alloc&) {
    cli::out_of_memory();
  } catch (const nlohmann::json::exception& error) {
    return cli::fail(
        "MALFORMED",
        fmt::format("a text is not UTF-8, or a JSON field is missing or of another type: {}",
                    error.what()),
        cli::kBadInput);
  } catch (const std::exception& error) {
    return cli::fail("INTERNAL", error.what(), cli::kMachineFailed);
  }
}
