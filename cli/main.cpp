#include <fmt/core.h>
#include <openssl/crypto.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/options/help.h"
#include "cli/options/parse.h"
#include "cli/print.h"
#include "discreet/base/error.h"
#include "discreet/base/version.h"

namespace discreet::cli {
namespace {

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

constexpr const char* kFooter = R"(
'discreet COMMAND --help' explains a command.
Exit status: 0 done, 1 the check says no, 2 bad usage or input, 3 the machine failed.
)";

std::string help_text(const Command& command) {
  return help_of(command) + (command.path() == "discreet" ? kFooter : "");
}

// Whether errors are JSON too. Known before the command line is parsed, which may fail.
bool json_asked = false;

int fail(std::string_view code, std::string_view sentence, int status) {
  if (json_asked)
    print(
        stderr, "{}\n",
        nlohmann::json{{"error", {{"code", code}, {"message", sentence}, {"status", status}}}}.dump(
            -1, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    print(stderr, "error: {}: {}\n", code, sentence);
  return status;
}

ExitStatus carry_out(const Parsed& parsed) {
  switch (parsed.asks) {
    case Parsed::Asks::kAction: return parsed.command->run();
    case Parsed::Asks::kHelp:
      print_lines(json_asked ? help_json(*parsed.command).dump() + "\n"
                             : help_text(*parsed.command));
      return kDone;
    case Parsed::Asks::kVersion: print("discreet {}\n", version()); return kDone;
    // Not done: a script that lost its arguments must not take this for a yes.
    case Parsed::Asks::kWhichCommand:
      std::fputs(help_text(*parsed.command).c_str(), stderr);
      return kBadInput;
  }
  return kBadInput;
}

int run(std::span<const std::string> arguments) {
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  json_asked = std::find(arguments.begin(), end, "--json") != end;
  const Command root = all_commands();
  try {
    const ExitStatus status = carry_out(parse(root, arguments));
    flush_output();
    return status;
  } catch (const UsageError& bad_usage) {
    const std::string sentence = bad_usage.what();
    return fail("INVALID_USAGE",
                sentence.ends_with('?')
                    ? sentence
                    : fmt::format("{}; see '{} --help'", sentence, bad_usage.command().path()),
                kBadInput);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kMalformed && !arguments.empty() && verifies(arguments[0]))
      return fail(to_string(error.code()), error.sentence(), kCheckSaysNo);
    throw;
  }
}

// Unwinding would need memory too: destructors of JSON values take some. Every file is then as a
// kill leaves it.
[[noreturn]] void out_of_memory() {
  constexpr std::string_view kText = "error: IO_ERROR: out of memory\n";
  constexpr std::string_view kJson =
      R"({"error":{"code":"IO_ERROR","message":"out of memory","status":3}})"
      "\n";
  const std::string_view sentence = json_asked ? kJson : kText;
  if (write(STDERR_FILENO, sentence.data(), sentence.size()) < 0) _exit(kMachineFailed);
  _exit(kMachineFailed);
}

// OpenSSL reports a lack of memory as a wrong signature, or a file without a key.
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
  // A write beyond the limit on the size of files then fails, after which temporary files are
  // removed; it does not end the process.
  std::signal(SIGXFSZ, SIG_IGN);
  std::set_new_handler(cli::out_of_memory);
  CRYPTO_set_mem_functions(cli::openssl_takes, cli::openssl_resizes, cli::openssl_returns);
  try {
    return cli::run(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
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
