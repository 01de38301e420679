// Properties of the files of a run directory, whatever the bytes. The first byte chooses what they
// are:
//   trace       the chain is checked: kMalformed; no chain but the honest one has its last digest
//   lines       the lines of a trace, recounted as if their chain held: kMalformed or an epsilon
//   difference  of two lines: a sentence
//   checkpoint  sealed here, so that altered contents reach the decoder: kMalformed, kInvalidInput,
//               or the same bytes when sealed again; never opens with the bytes as they are
//   seal        kMalformed, unless it is the honest one
//   secret      kMalformed or kIoError
#include <algorithm>
#include <cmath>

#include "discreet/base/files.h"
#include "discreet/base/folder_testing.h"
#include "discreet/base/json_read_impl.h"
#include "discreet/mechanism/step/apply_testing.h"
#include "discreet/run/checkpoint.h"
#include "discreet/run/mac_impl.h"
#include "discreet/run/recount.h"
#include "discreet/run/secret_key.h"
#include "discreet/run/trace_seal.h"
#include "tests/fuzz/file.h"
#include "tests/fuzz/fuzz.h"

using namespace discreet;
using namespace discreet::run;

namespace {

enum Parser : std::uint8_t { kTrace, kLines, kDifference, kCheckpoint, kSeal, kSecret, kParsers };

// A run of three steps, with its files.
struct Honest {
  Folder folder;
  Config config;
  random::Key secret = random::Key::from_seed(1);
  std::string trace, seal_text;
  TracePosition end;
  Bytes checkpoint;
  Expected expected;

  Honest() {
    Config base = mechanism::small::base();
    base.privacy.target_epsilon = 60;
    base.privacy.accountant = AccountantKind::kRdp;
    config = mechanism::resolved(base);
    mechanism::Mechanism m = mechanism::mechanism_of(config, mechanism::small::model());
    TraceWriter writer = TraceWriter::create(folder / "trace.jsonl", m.trace_header());
    for (int i = 0; i < 3; ++i)
      writer.append("iter", mechanism::trace_iter(mechanism::small::step(m)));
    writer.append("run_end", m.trace_end());
    writer.flush();
    end = writer.position();
    write_seal(folder.path(), {end, {}}, secret);
    trace = text_of("trace.jsonl");
    seal_text = text_of(kSealFile);
    Checkpoint c;
    c.specification = expected.specification = "fuzz";
    c.trace = end;
    c.mechanism = m.save();
    checkpoint = seal(c, secret);
  }
  std::string text_of(const char* name) const {
    const Bytes bytes = read_file(folder / name);
    return {bytes.begin(), bytes.end()};
  }
};
const Honest& honest() {
  static const Honest h;
  return h;
}

std::vector<TraceLine> lines_of(std::string_view text) {
  std::vector<TraceLine> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const auto object = try_read_json(line);
    if (object.is_object() && object.contains("kind") && object["kind"].is_string())
      out.push_back({object["kind"].get<std::string>(), line});
  }
  return out;
}

void trace(ByteView bytes) {
  static const fuzz::File file("trace.jsonl");
  file.put(bytes);
  fuzz::throws_only({ErrorCode::kMalformed}, [&] {
    verify_trace(file.path(), honest().end.head);
    fuzz::require(fuzz::text_of(bytes) == honest().trace, "an altered trace has the same digest");
  });
  fuzz::throws_only({ErrorCode::kMalformed}, [&] { trace_lines(file.path()); });
}

void checkpoint(ByteView bytes) {
  const Bytes as_they_are(bytes.begin(), bytes.end());
  fuzz::throws_only({ErrorCode::kMalformed}, [&] {
    open(bytes, honest().secret, honest().expected);
    fuzz::require(as_they_are == honest().checkpoint, "an altered checkpoint opens");
  });
  Bytes sealed = as_they_are;
  const Digest tag = mac(bytes, honest().secret, "checkpoint");
  sealed.insert(sealed.end(), tag.begin(), tag.end());
  fuzz::throws_only({ErrorCode::kMalformed, ErrorCode::kInvalidInput}, [&] {
    const Checkpoint found = open(sealed, honest().secret, honest().expected);
    fuzz::require(seal(found, honest().secret) == sealed, "a checkpoint has two encodings");
    mechanism::Mechanism m = mechanism::mechanism_of(honest().config, mechanism::small::model());
    m.restore(found.mechanism);
  });
}

}  // namespace

std::vector<Bytes> fuzz::seeds() {
  const ByteView body =
      ByteView(honest().checkpoint).first(honest().checkpoint.size() - std::tuple_size_v<Digest>);
  return {seed(kTrace, honest().trace),
          seed(kLines, honest().trace),
          seed(kDifference, honest().trace),
          seed(kCheckpoint, body),
          seed(kCheckpoint, honest().checkpoint),
          seed(kSeal, honest().seal_text),
          seed(kSecret, std::string("discreet-secret-1 ") + std::string(64, 'a') + "\n")};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const fuzz::File file("run");
  const ByteView bytes(data + 1, size - 1);
  const std::string_view text = fuzz::text_of(bytes);
  switch (data[0] % kParsers) {
    case kTrace: trace(bytes); break;
    case kLines:
      fuzz::throws_only({ErrorCode::kMalformed}, [&] {
        const Recount found = recount(honest().config, lines_of(text));
        fuzz::require(!found.known || found.spent.upper >= 0,
                      "an epsilon is negative or no number");
      });
      break;
    case kDifference: {
      const std::size_t cut = std::min(text.find('\n'), text.size());
      difference(text.substr(0, cut), text.substr(cut));
      break;
    }
    case kCheckpoint: checkpoint(bytes); break;
    case kSeal: {
      static const Folder folder;
      static const bool linked = [] {
        std::filesystem::copy(honest().folder / "trace.jsonl", folder / "trace.jsonl");
        return true;
      }();
      static_cast<void>(linked);
      std::ofstream(folder / kSealFile, std::ios::binary) << text;
      fuzz::throws_only({ErrorCode::kMalformed}, [&] {
        open_seal(folder.path(), honest().secret, trace_lines(folder / "trace.jsonl"));
        fuzz::require(text == honest().seal_text, "a seal was forged");
      });
      break;
    }
    default:
      file.put(bytes);
      fuzz::throws_only({ErrorCode::kMalformed, ErrorCode::kIoError},
                        [&] { load_secret(file.path()); });
  }
  return 0;
}
