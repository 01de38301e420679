// Runs a fuzzer without libFuzzer: every corpus file, then seeded mutations of them.
//   NAME_fuzz_short CORPUS EXECUTIONS
// Not guided by coverage: it guards against regressions in every `make test`; the search for new
// findings is libFuzzer's, in `make test-slow`.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

using Input = std::vector<std::uint8_t>;

Input current;

// Only calls that are allowed in a signal handler.
void print_input(int signal_number) {
  static constexpr char kDigits[] = "0123456789abcdef";
  const auto write_all = [](const char* text, std::size_t size) {
    if (write(STDERR_FILENO, text, size) < 0) _exit(3);
  };
  write_all("input: ", 7);
  for (const std::uint8_t byte : current) {
    const char hex[2] = {kDigits[byte >> 4], kDigits[byte & 15]};
    write_all(hex, 2);
  }
  write_all("\n", 1);
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

class Mutator {
 public:
  explicit Mutator(std::vector<Input> corpus) : corpus_(std::move(corpus)) {}

  Input next() {
    Input input = pick();
    for (std::size_t rounds = 1 + below(4); rounds > 0; --rounds) mutate(input);
    return input;
  }

 private:
  std::size_t below(std::size_t bound) { return random_() % bound; }
  const Input& pick() { return corpus_[below(corpus_.size())]; }

  void mutate(Input& input) {
    if (input.empty()) input.push_back(0);
    const auto at = input.begin() + static_cast<std::ptrdiff_t>(below(input.size()));
    const auto end = at + static_cast<std::ptrdiff_t>(1 + below(input.end() - at));
    switch (below(6)) {
      case 0: *at ^= static_cast<std::uint8_t>(1u << below(8)); break;
      case 1: *at = static_cast<std::uint8_t>(below(256)); break;
      case 2: input.insert(at, static_cast<std::uint8_t>(below(256))); break;
      case 3: input.erase(at, end); break;
      case 4: {
        const Input piece(at, end);
        input.insert(at, piece.begin(), piece.end());
        break;
      }
      default: {
        const Input& other = pick();
        input.insert(at, other.begin(), other.end());
      }
    }
  }

  std::vector<Input> corpus_;
  std::mt19937_64 random_{1};
};

void execute(Input input) {
  current = std::move(input);
  LLVMFuzzerTestOneInput(current.data(), current.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s CORPUS EXECUTIONS\n", argv[0]);
    return 2;
  }
  for (const int fatal : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS, SIGILL})
    std::signal(fatal, print_input);
  std::vector<std::filesystem::path> paths;
  if (std::filesystem::is_directory(argv[1]))
    for (const auto& file : std::filesystem::directory_iterator(argv[1]))
      paths.push_back(file.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Input> corpus{{}};
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  for (Input& seed : fuzz::seeds()) corpus.push_back(std::move(seed));
  for (const Input& input : corpus) execute(input);
  Mutator mutator(std::move(corpus));
  const long executions = std::stol(argv[2]);
  for (long i = 0; i < executions; ++i) execute(mutator.next());
  std::printf("%zu corpus files and %ld mutations, no finding\n", paths.size(), executions);
}
