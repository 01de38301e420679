// Properties of the confidential stores over SQLite files that somebody altered
// (edited_database.h). The first byte chooses the store:
//   uses        opening and reserving throw kMalformed, kIoError or kInvalidInput, and never grant
//               more than a cap
//   unlearning  opening, predicting, inserting and publishing throw an Error of the input, or
//               kAccountantDivergence where the altered options ask for more than binary64 can
#include "discreet/admission/uses.h"
#include "discreet/unlearning/service/service_testing.h"
#include "tests/fuzz/edited_database.h"
#include "tests/fuzz/file.h"
#include "tests/fuzz/fuzz.h"

using namespace discreet;
namespace unlearning = discreet::unlearning;

namespace {

enum Kind : std::uint8_t { kUses, kExact, kErm, kStream, kKinds };

const Digest kRun = sha256(bytes_of("run")), kDescriptor = sha256(bytes_of("descriptor"));

fuzz::EditedDatabase honest_uses() {
  const fuzz::File file("honest-uses");
  {
    admission::UseStore store(file.path());
    const admission::UseStore::Claim claims[] = {{kDescriptor, 1, 5}, {kRun, 2, 3}};
    store.reserve(kRun, 0, claims);
    store.reserve(kRun, 1, claims);
  }
  return fuzz::EditedDatabase(file.bytes());
}

fuzz::EditedDatabase honest_service(const unlearning::EngineOptions& options) {
  using namespace unlearning::testing;
  const fuzz::File file("honest-model"), log("honest-log");
  unlearning::Service::create(file.path(), "m", options);
  unlearning::Service service(file.path(), repeatable_noise());
  service.insert("all", rows(0, 40));
  auto ledger = new_ledger(log.path());
  service.erase("d", std::vector<std::string>{"subject-1"}, ledger, kToday);
  try {
    service.publish();
  } catch (const Error&) {  // a learner that is still warming up has nothing to publish
  }
  return fuzz::EditedDatabase(file.bytes());
}

const fuzz::EditedDatabase& honest(Kind kind) {
  using namespace unlearning::testing;
  static const fuzz::EditedDatabase stores[] = {honest_uses(), honest_service(exact_options()),
                                                honest_service(erm_options()),
                                                honest_service(stream_options())};
  return stores[kind];
}

void uses(const fuzz::File& file) {
  admission::UseStore store(file.path(), 0);
  const admission::UseStore::Claim claims[] = {{kDescriptor, 1, 5}};
  const std::uint64_t before = store.used(kDescriptor);
  const bool granted = store.reserve(kRun, 7, claims)[0] != 0;
  fuzz::require(!granted || store.used(kDescriptor) <= 5, "more uses than the cap were granted");
  fuzz::require(store.used(kDescriptor) >= before, "uses were given back");
}

void service(const fuzz::File& file) {
  using namespace unlearning::testing;
  unlearning::Service service(file.path(), repeatable_noise());
  const auto tried = [](auto&& f) {  // what one operation does not take, the next may
    fuzz::throws_only(
        {ErrorCode::kMalformed, ErrorCode::kInvalidInput, ErrorCode::kPrivacyBudgetExceeded,
         ErrorCode::kIoError, ErrorCode::kAccountantDivergence},
        f);
  };
  tried([&] { service.status(); });
  tried([&] { service.rows(); });
  tried([&] { service.predict(std::vector<double>{1, 0, 0}); });
  tried([&] { service.insert("more", rows(100, 102)); });
  tried([&] { service.publish(); });
}

}  // namespace

std::vector<Bytes> fuzz::seeds() {
  std::vector<Bytes> out;
  for (std::uint8_t kind = 0; kind < kKinds; ++kind)
    for (std::uint8_t edit = 0; edit < 14; ++edit)
      for (std::uint8_t table = 0; table < 4; ++table)
        out.push_back({kind, edit, static_cast<std::uint8_t>(table + 4), 0, 1, 2, 2, 7, 0xff});
  return out;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const fuzz::File file("store");
  const Kind kind = static_cast<Kind>(data[0] % kKinds);
  file.remove();
  file.put(honest(kind).edited({data + 1, size - 1}));
  fuzz::throws_only({ErrorCode::kMalformed, ErrorCode::kInvalidInput, ErrorCode::kIoError},
                    [&] { kind == kUses ? uses(file) : service(file); });
  return 0;
}
