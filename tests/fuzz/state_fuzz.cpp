// Properties of saved states, whatever the bytes: restoring throws kMalformed, or gives an object
// that is saved as the same bytes. The first byte chooses whose state they are. (Events with a
// value out of range: kInvalidDpConfig.)
#include <algorithm>

#include "discreet/accounting/accountant.h"
#include "discreet/accounting/filter.h"
#include "discreet/unlearning/service/learner_impl.h"
#include "discreet/unlearning/service/service_testing.h"
#include "tests/fuzz/fuzz.h"

using namespace discreet;
using namespace discreet::accounting;

namespace {

constexpr const char* kAccountants[] = {"pld", "rdp", "moments", "gdp", "f_dp"};
enum Parser : std::uint8_t {
  kFirstOther = 5,
  kEvent = kFirstOther,
  kRdp,
  kZcdp,
  kOdometer,
  kLearner,
  kParsers
};

template <class F>
void same_or_malformed(ByteView bytes, F&& restored) {
  fuzz::throws_only({ErrorCode::kMalformed}, [&] {
    fuzz::require(std::ranges::equal(restored().save(), bytes), "a state is saved as other bytes");
  });
}

std::vector<Event> events() {
  return {Event(Gaussian{1.0}, Poisson{0.01}, Adjacency::kAddRemove),
          Event(Gaussian{2.0}, NoSampling{}, Adjacency::kAddRemove),
          Event(RoundedGaussian{1.5}, Poisson{0.5}, Adjacency::kAddRemove)};
}

unlearning::Learner learner(const unlearning::EngineOptions& options) {
  using namespace unlearning::testing;
  const Folder folder;
  unlearning::Service::create(folder / "m.db", "m", options);
  unlearning::Service service(folder / "m.db", repeatable_noise());
  unlearning::Learner fresh = service.fresh("fuzz");
  for (std::uint64_t i = 0; i < 30; ++i) service.learn(fresh, i, row(i).x, row(i).y);
  return fresh;
}

}  // namespace

std::vector<Bytes> fuzz::seeds() {
  using namespace unlearning::testing;
  std::vector<Bytes> out;
  for (std::uint8_t i = 0; i < std::size(kAccountants); ++i) {
    const auto accountant = make_accountant(kAccountants[i]);
    for (const Event& event : events()) {
      try {
        accountant->compose(event, 10);
      } catch (const Error&) {  // not every accountant bounds every event
      }
    }
    out.push_back(seed(i, accountant->save()));
  }
  for (const Event& event : events()) out.push_back(seed(kEvent, encode(event)));
  const double orders[] = {2, 4, 32}, spends[] = {0.1, 0.2, 0.4};
  RdpFilter filter(orders, 8, 1e-5);
  filter.spend(spends);
  out.push_back(seed(kRdp, filter.save()));
  ZcdpFilter zcdp(1);
  zcdp.spend(0.25);
  out.push_back(seed(kZcdp, zcdp.save()));
  ZcdpOdometer odometer(0.1, 1e-5);
  odometer.spend(0.3);
  out.push_back(seed(kOdometer, odometer.save()));
  for (const unlearning::EngineOptions& options :
       {unlearning::EngineOptions(exact_options()), unlearning::EngineOptions(erm_options()),
        unlearning::EngineOptions(stream_options())})
    out.push_back(seed(kLearner, saved(learner(options))));
  return out;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const ByteView bytes(data + 1, size - 1);
  const std::uint8_t parser = data[0] % kParsers;
  switch (parser) {
    case kEvent:
      fuzz::throws_only({ErrorCode::kMalformed, ErrorCode::kInvalidDpConfig}, [&] {
        fuzz::require(std::ranges::equal(encode(decode_event(bytes)), bytes),
                      "an event has two encodings");
      });
      break;
    case kRdp: same_or_malformed(bytes, [&] { return RdpFilter::restore(bytes); }); break;
    case kZcdp: same_or_malformed(bytes, [&] { return ZcdpFilter::restore(bytes); }); break;
    case kOdometer: same_or_malformed(bytes, [&] { return ZcdpOdometer::restore(bytes); }); break;
    case kLearner:
      fuzz::throws_only({ErrorCode::kMalformed}, [&] {
        const auto restored =
            unlearning::restored_learner(bytes, unlearning::NoiseSource::insecure(1));
        unlearning::ServiceStatus status;
        describe(restored, status);
        // A receipt cannot hold every number that an engine can.
        fuzz::throws_only({ErrorCode::kInvalidInput}, [&] { terms_of(restored); });
      });
      break;
    default: {
      const auto accountant = make_accountant(kAccountants[parser]);
      fuzz::throws_only({ErrorCode::kMalformed}, [&] {
        accountant->restore(bytes);
        fuzz::require(std::ranges::equal(accountant->save(), bytes),
                      "a state is saved as other bytes");
      });
    }
  }
  return 0;
}
