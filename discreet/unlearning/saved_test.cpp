// A state that is saved and restored continues as if nothing had happened.
#include <gtest/gtest.h>

#include <cmath>

#include "discreet/base/error.h"
#include "discreet/base/hash.h"
#include "discreet/unlearning/engines/erm_engine.h"
#include "discreet/unlearning/engines/exact_engine.h"
#include "discreet/unlearning/online/memory_pair.h"

namespace discreet::unlearning {
namespace {

std::vector<double> record(std::uint64_t i) {
  std::vector<double> x(3);
  NoiseSource::insecure(i).add(0.4, x);
  return x;
}
double label(std::uint64_t i) { return record(i)[0] > 0 ? 1 : -1; }

OdometerOptions options(Accounting accounting) {
  OdometerOptions o;
  o.accounting = accounting;
  o.gamma_learn = o.gamma_priv = 0.5;
  o.T = 100000;
  o.enforced.dimension = 3;
  o.enforced.D = 2;
  return o;
}

// Calibrates, learns and deletes, calling `between` after every event.
std::unique_ptr<MemoryPair> course(
    Accounting accounting, const std::function<void(std::unique_ptr<MemoryPair>&)>& between) {
  auto pair = std::make_unique<MemoryPair>(
      3, std::make_shared<PrivacyOdometer>(options(accounting)), Calibrator({0.9, 5.0}),
      Loss::kSquared, NoiseSource::insecure(1));
  std::uint64_t next = 0;
  for (; next < 20; ++next) {
    pair->calibrate_step(record(next), label(next));
    between(pair);
  }
  pair->finalize_calibration(0.5);
  while (!pair->ready_to_predict()) {
    pair->insert(record(next), label(next));
    ++next;
    if (next % 16 == 0) between(pair);
  }
  pair->odometer().finalize_with(pair->stats(), 100000, pair->inserts_seen());
  for (std::uint64_t i = 0; i < 3; ++i) {
    between(pair);
    pair->use_noise(NoiseSource::insecure(100 + i));
    pair->erase(record(i), label(i));
  }
  return pair;
}

TEST(Saved, AMemoryPairGoesOnWhereItWas) {
  for (const Accounting accounting : {Accounting::kSpecification, Accounting::kZcdp}) {
    const auto straight = course(accounting, [](auto&) {});
    for (const Records records : {Records::kInside, Records::kLeftOut}) {
      const auto again = course(accounting, [&](std::unique_ptr<MemoryPair>& pair) {
        const Bytes saved = pair->save(records);
        auto next =
            std::make_unique<MemoryPair>(MemoryPair::restore(saved, NoiseSource::insecure(1)));
        if (records == Records::kInside) {
          EXPECT_EQ(next->save(records), saved);
        } else {  // deletes take the first records one after another
          for (std::uint64_t i = pair->deletes_seen(); i < pair->inserts_seen(); ++i) {
            next->adopt(record(i), label(i));
          }
        }
        pair = std::move(next);
      });
      EXPECT_EQ(sha256(again->save(Records::kLeftOut)), sha256(straight->save(Records::kLeftOut)));
      EXPECT_THROW(again->erase(record(0), label(0)), Error) << "already deleted";
      EXPECT_EQ(again->deletes_seen(), 3u);
    }
  }
}

TEST(Saved, AnExactEngineHasTheBytesOfItsLiveRecords) {
  ExactOptions o;
  o.dimension = 3;
  o.N = o.n_max = 100;
  ExactEngine engine(o), never(o);
  for (RecordId id = 0; id < 50; ++id) engine.insert(id, record(id), label(id));
  const std::vector<RecordId> gone = {3, 0, 49, 17};
  engine.erase(gone);
  for (RecordId id = 50; id-- > 0;) {
    if (std::find(gone.begin(), gone.end(), id) == gone.end()) {
      never.insert(id, record(id), label(id));
    }
  }
  const Bytes saved = engine.save(Records::kInside);
  EXPECT_EQ(saved, never.save(Records::kInside)) << "in any order, also of what is in the file";
  ExactEngine again = ExactEngine::restore(saved);
  EXPECT_EQ(again.state_digest(), engine.state_digest());
  EXPECT_EQ(again.save(Records::kInside), saved);
  EXPECT_EQ(again.publish().parameters, engine.publish().parameters);
  const RecordId id = 5;
  again.erase({&id, 1});
  engine.erase({&id, 1});
  EXPECT_EQ(again.state_digest(), engine.state_digest());
}

TEST(Saved, AnErmEngineKeepsItsParametersRecordsAndSpend) {
  ErmOptions o;
  o.dimension = 3;
  o.N = o.n_max = 100;
  o.lambda = 0.01;
  ErmEngine engine(o, NoiseSource::insecure(1));
  for (RecordId id = 0; id < 50; ++id) engine.insert(id, record(id), label(id));
  engine.publish();
  const Bytes saved = engine.save(Records::kInside);
  ErmEngine again = ErmEngine::restore(saved, NoiseSource::insecure(2));
  EXPECT_EQ(again.save(Records::kInside), saved);
  EXPECT_EQ(again.budget().spent(), engine.budget().spent());
  EXPECT_EQ(again.gradient_bound(), engine.gradient_bound());
  const ErmEngine bare =
      ErmEngine::restore(engine.save(Records::kLeftOut), NoiseSource::insecure(2));
  EXPECT_EQ(bare.budget().spent(), engine.budget().spent());
  EXPECT_EQ(bare.live(), 0u);
}

TEST(Saved, OtherBytesAreRefusedAndNoBudgetIsBroughtAlong) {
  const auto refused = [](const auto& read) {
    try {
      read();
      return false;
    } catch (const Error& error) {
      return error.code() == ErrorCode::kMalformed;
    }
  };
  PrivacyOdometer odometer(options(Accounting::kZcdp));
  const Bytes saved = odometer.save();
  EXPECT_EQ(PrivacyOdometer::restore(saved).save(), saved);
  for (std::size_t i = 0; i < saved.size(); ++i) {
    EXPECT_TRUE(refused([&] { PrivacyOdometer::restore(ByteView(saved).first(i)); })) << i;
  }
  EXPECT_TRUE(refused([&] { ExactEngine::restore(saved); }));
  // The total is in the bytes; one unit more is noticed.
  const cbor::Value state = cbor::decode(saved);
  std::vector<cbor::Entry> entries(state.as_map());
  for (cbor::Entry& entry : entries) {
    if (entry.key == cbor::Value("budget")) {
      const auto& parts = entry.value.as_array();
      entry.value = cbor::array({parts[0].as_unsigned() + 1, parts[1].as_unsigned()});
    }
  }
  EXPECT_TRUE(
      refused([&] { PrivacyOdometer::restore(cbor::encode(cbor::map(std::move(entries)))); }));
}

}  // namespace
}  // namespace discreet::unlearning
