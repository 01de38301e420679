#include "cli/demo/governed_corpus.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "discreet/admission/descriptor.h"
#include "discreet/base/error.h"
#include "discreet/base/files.h"
#include "discreet/data/digits.h"

namespace discreet::cli {
namespace {

using namespace admission;
namespace fs = std::filesystem;

constexpr std::size_t kPixels = 64;
constexpr Instant kDay = 86'400;

constexpr const char* kCorpusName = "digits.example/corpus";
constexpr const char* kPolicy = R"(corpus: digits.example/corpus
accountant: pld
floors: {{clip_norm: 0.01, noise_multiplier: 0.3}}
most_validity_days: 730
epoch_seconds: 86400
retention_epochs: 30
noise: {{stddev: 3, clipping: flat}}
classes:
  # What each class is promised (clip norm, noise, uses), and which layers it may reach.
  open:     {{clip_norm: 1, noise_multiplier: 0.5, most_occurrences: 36, profile: {{whole: true}}}}
  research: {{clip_norm: 1, noise_multiplier: 0.6, most_occurrences: 25, profile: {{depth: [0.5, 1]}}}}
  clinical: {{clip_norm: 0.5, noise_multiplier: 1, most_occurrences: 16, sensitive: true,
             profile: {{layers: [1, 1]}}}}
keys:
  - {{name: library, public_key: {library}, classes: [open]}}
  - {{name: university, public_key: {university}, classes: [research]}}
  - {{name: hospital, public_key: {hospital}, classes: [clinical]}}
  - {{name: lost, public_key: {lost}, classes: [open]}}
revoked: [{revoked}]
)";

constexpr const char* kTraining = R"(data:
  format: csv
  train: train.csv
  test: test.csv
  label: digit
  classes: ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
  numeric: {{{bounds}}}
model: {{kind: mlp, hidden: [32]}}
optimizer: {{rate: 2}}
corpus:
  policy: policy.yaml
  descriptors: descriptors.jsonl
  uses: ../corpus.uses
  ledger: ../ledger.db
  ledger_key: steward.key
  withdrawn: withdrawn.txt
  at: {at}
run: {{epochs: 20}}
security:
  differential_privacy:
    adjacency: zero_out
    target_epsilon: 12
    target_delta: 1e-5
    declared_size: 1440
    effective_batch_size: 240
    clipping: {{norm: 1, ghost: true}}
)";

void write(const fs::path& path, std::string_view text, bool secret = false) {
  write_atomically(path, bytes_of(text), secret ? Access::kOwner : Access::kShared);
}

// A line of the file for each image; pixels are whole numbers from 0 to 16.
std::vector<std::string> lines_of(const data::Dataset& data) {
  std::vector<std::string> out;
  for (std::size_t row = 0; row < data.rows; ++row) {
    std::string line;
    for (std::size_t i = 0; i < kPixels; ++i)
      line += fmt::format("{:.0f},", data.x[row * kPixels + i] * 16);
    out.push_back(line + std::to_string(data.label[row]));
  }
  return out;
}

std::string csv_of(const std::vector<std::string>& lines) {
  std::string out;
  for (std::size_t i = 0; i < kPixels; ++i) out += fmt::format("p{},", i);
  return fmt::format("{}digit\n{}\n", out, fmt::join(lines, "\n"));
}

class Signers {
 public:
  explicit Signers(const fs::path& folder) {
    for (const char* name : {"steward", "library", "university", "hospital", "lost", "stranger"}) {
      SigningKey& key = keys_.emplace(name, SigningKey::generate()).first->second;
      write(folder / (std::string(name) + ".key"), key.to_pem({}), true);
      write(folder / (std::string(name) + ".pub"), key.public_key().to_pem());
    }
  }
  const SigningKey& operator[](const char* name) const { return keys_.at(name); }
  std::string hex(const char* name) const { return to_hex(keys_.at(name).public_key().bytes()); }

 private:
  std::map<std::string, SigningKey> keys_;
};

// The file of descriptors, line by line.
class Anchors {
 public:
  explicit Anchors(Instant today) : today_(today) {}

  Descriptor descriptor(const std::string& line, const char* data_class) {
    const std::string name = data_class;
    Descriptor d;
    d.contributor = fmt::format("{}-{}", name, ++number_);
    d.data_class = name;
    d.clip_norm = parse_scaled(name == "clinical" ? "0.5" : "1", "clip_norm");
    d.noise_multiplier = parse_scaled(name == "clinical"   ? "1"
                                      : name == "research" ? "0.6"
                                                           : "0.5",
                                      "z");
    d.occurrences = name == "clinical" ? 16 : name == "research" ? 25 : 36;
    d.not_before = today_ - 30 * kDay;
    d.not_after = today_ + 300 * kDay;
    d.corpus = kCorpusName;
    d.content_anchor = sha256(bytes_of(line));
    d.nonce = fresh_nonce();
    return d;
  }
  Digest add(const Descriptor& d, const SigningKey& key) {
    const Bytes bytes = encode(d);
    add(bytes, attest(key, bytes));
    return sha256(bytes);
  }
  void add(const Bytes& descriptor, const Bytes& attestation) {
    nlohmann::json line = {{"descriptor_hash", to_hex(sha256(descriptor))},
                           {"descriptor", to_hex(descriptor)}};
    if (!attestation.empty()) line["attestation"] = to_hex(attestation);
    text_ += line.dump() + "\n";
  }
  const std::string& text() const { return text_; }

 private:
  Instant today_;
  int number_ = 0;
  std::string text_;
};

}  // namespace

GovernedCorpus make_governed_corpus(const fs::path& run) {
  if (fs::exists(run) && !fs::is_empty(run))
    throw Error(ErrorCode::kInvalidInput, "demo",
                fmt::format("{} is not empty; give another --out, or --resume", run.string()));
  GovernedCorpus corpus{run / "corpus"};
  std::error_code failed;
  fs::create_directories(corpus.folder, failed);
  if (failed)
    throw Error(ErrorCode::kIoError, "demo",
                fmt::format("cannot make {}: {}", corpus.folder.string(), failed.message()));
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  const Instant today = now / kDay * kDay;
  const Signers signers(corpus.folder);
  write(corpus.at("policy.yaml"),
        fmt::format(kPolicy, fmt::arg("library", signers.hex("library")),
                    fmt::arg("university", signers.hex("university")),
                    fmt::arg("hospital", signers.hex("hospital")),
                    fmt::arg("lost", signers.hex("lost")),
                    fmt::arg("revoked", to_hex(signers["lost"].public_key().id()))));

  const data::Digits digits = data::read_digits();
  std::vector<std::string> lines = lines_of(digits.train);
  write(corpus.at("test.csv"), csv_of(lines_of(digits.test)));

  Anchors anchors(today);
  // The first ten lines are rejected, each for another reason.
  const auto open = [&](std::size_t line) { return anchors.descriptor(lines[line], "open"); };
  const SigningKey& library = signers["library"];
  // 0: nobody signed it, NO_ATTESTATION
  const Bytes malformed = encode(open(1));
  anchors.add(Bytes(malformed.begin(), malformed.end() - 1), attest(library, malformed));
  anchors.add(open(2), signers["stranger"]);                       // UNTRUSTED_KEY
  anchors.add(open(3), signers["lost"]);                           // REVOKED_KEY
  anchors.add(encode(open(4)), attest(library, encode(open(4))));  // another nonce: BAD_SIGNATURE
  Descriptor d = open(5);
  d.data_class = "secret";  // UNKNOWN_CLASS
  anchors.add(d, library);
  d = open(6);
  d.not_after = today;  // OUTSIDE_VALIDITY
  anchors.add(d, library);
  d = open(7);
  d.noise_multiplier = parse_scaled("0.1", "z");  // BELOW_FLOOR
  anchors.add(d, library);
  write(corpus.at("withdrawn.txt"), to_hex(anchors.add(open(8), library)) + "\n");  // WITHDRAWN
  d = open(9);
  anchors.add(d, library);
  d.nonce = fresh_nonce();
  anchors.add(d, library);  // the same payload of the same contributor: DUPLICATE
  Digest leaver{};
  for (std::size_t i = 10; i < lines.size(); ++i) {
    const char* data_class = i % 10 < 5 ? "open" : i % 10 < 8 ? "research" : "clinical";
    const char* signer = i % 10 < 5 ? "library" : i % 10 < 8 ? "university" : "hospital";
    const Digest hash = anchors.add(anchors.descriptor(lines[i], data_class), signers[signer]);
    if (i == 18) leaver = hash;
  }
  lines.push_back(lines[9]);
  write(corpus.at("train.csv"), csv_of(lines));
  write(corpus.at("descriptors.jsonl"), anchors.text());
  write(corpus.at(GovernedCorpus::kLeaver), to_hex(leaver) + "\n");

  std::vector<std::string> bounds;
  for (std::size_t i = 0; i < kPixels; ++i) bounds.push_back(fmt::format("p{}: [0, 16]", i));
  // Written last: a folder that has it is complete.
  write(corpus.at(GovernedCorpus::kConfig),
        fmt::format(kTraining, fmt::arg("bounds", fmt::join(bounds, ", ")),
                    fmt::arg("at", instant_text(today))));
  return corpus;
}

}  // namespace discreet::cli
