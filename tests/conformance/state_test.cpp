// Every field of the saved state is read back: if it was changed, it is rejected, or it is what the
// restored mechanism holds.
#include <gtest/gtest.h>

#include <set>

#include "tests/conformance/small_run.h"

namespace discreet::conformance {
namespace {

// Other values of the same kind as `value`, and null.
std::vector<cbor::Value> others(const cbor::Value& value) {
  std::vector<cbor::Value> out;
  switch (value.type()) {
    case cbor::Type::kUnsigned:
      out.emplace_back(value.as_unsigned() + 1);
      out.emplace_back(std::uint64_t{0xffffffffffffffff});
      break;
    case cbor::Type::kFloat:
      out.emplace_back(value.as_float() * 2 + 1);
      out.emplace_back(-1.0);
      out.emplace_back(std::numeric_limits<double>::quiet_NaN());
      break;
    case cbor::Type::kText: out.emplace_back(std::string(value.as_text()) + "x"); break;
    case cbor::Type::kBytes: {
      const Bytes bytes(value.as_bytes().begin(), value.as_bytes().end());
      for (const std::size_t at : {std::size_t{0}, bytes.size() / 2, bytes.size() - 1}) {
        Bytes changed = bytes;
        if (at < changed.size()) changed[at] ^= 1;
        out.emplace_back(changed);
      }
      Bytes longer = bytes;
      longer.push_back(0);
      out.emplace_back(longer);
      break;
    }
    case cbor::Type::kArray: {
      for (std::size_t i = 0; i < value.as_array().size(); ++i)
        for (const cbor::Value& other : others(value.as_array()[i])) {
          std::vector<cbor::Value> items = value.as_array();
          items[i] = other;
          out.push_back(cbor::array(std::move(items)));
        }
      break;
    }
    case cbor::Type::kMap: {
      for (std::size_t i = 0; i < value.as_map().size(); ++i) {
        for (const cbor::Value& other : others(value.as_map()[i].value)) {
          std::vector<cbor::Entry> entries = value.as_map();
          entries[i].value = other;
          out.push_back(cbor::map(std::move(entries)));
        }
        std::vector<cbor::Entry> fewer = value.as_map();
        fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
        out.push_back(cbor::map(std::move(fewer)));
      }
      break;
    }
    case cbor::Type::kNull: out.emplace_back(std::uint64_t{1}); break;
    default: break;
  }
  if (!value.is_null()) out.emplace_back(nullptr);
  return out;
}

Config rich() {
  Config config = small_config();
  config.privacy.clip_strategy = ClipStrategy::kAdaptive;
  config.privacy.gradient_accumulation_steps = 2;
  config.privacy.compression = Compression::kTopkDp;
  config.privacy.compression_keep = 0.5;
  config.privacy.mode = ScheduleMode::kBudgetAdaptive;
  config.privacy.accountant = AccountantKind::kRdp;
  return config;
}

// A state in which no field is empty: a step done, half of the next one accumulated.
Bytes rich_state() {
  Mechanism m = start(rich());
  small_step(m, 1);
  const SmallBatch batch(1, 1);
  m.accumulate(batch.part(Form::kRows, 0, kRecords / 2));
  return m.save();
}

TEST(StateFields, ChangedInAnyWayAreRefusedOrHeld) {
  const Bytes good = rich_state();
  const cbor::Value state = cbor::decode(good);
  Mechanism m = start(rich());
  const Bytes fresh = m.save();
  std::set<std::string> refused, held;
  for (const cbor::Entry& entry : state.as_map()) {
    const std::string key(entry.key.as_text());
    SCOPED_TRACE(key);
    EXPECT_FALSE(entry.value.is_null());
    const std::vector<cbor::Value> changes = others(entry.value);
    EXPECT_GE(changes.size(), 2u);
    for (const cbor::Value& other : changes) {
      std::vector<cbor::Entry> entries = state.as_map();
      for (cbor::Entry& e : entries)
        if (e.key == entry.key) e.value = other;
      const Bytes changed = cbor::encode(cbor::map(std::move(entries)));
      ASSERT_NE(changed, good);
      const Bytes before = m.save();
      try {
        m.restore(changed);
        EXPECT_EQ(m.save(), changed);
        held.insert(key);
        m.restore(fresh);
      } catch (const Error&) {
        EXPECT_EQ(m.save(), before);
        refused.insert(key);
      }
    }
  }
  // What another mechanism, or a field of another meaning, would be: always rejected.
  for (const char* key : {"format", "specification", "config_hash", "layout_hash", "config",
                          "allocation_map_snapshot", "per_module_snapshot"}) {
    EXPECT_TRUE(refused.contains(key)) << key;
    EXPECT_FALSE(held.contains(key)) << key;
  }
  EXPECT_EQ(refused.size(), state.as_map().size()) << "every field has a value that is refused";
}

TEST(StateFields, MissingOrUnknownAreRefused) {
  const Bytes good = rich_state();
  const cbor::Value state = cbor::decode(good);
  Mechanism m = start(rich());
  const Bytes before = m.save();
  for (std::size_t i = 0; i < state.as_map().size(); ++i) {
    std::vector<cbor::Entry> entries = state.as_map();
    entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THROW(m.restore(cbor::encode(cbor::map(std::move(entries)))), Error)
        << state.as_map()[i].key.as_text();
  }
  std::vector<cbor::Entry> more = state.as_map();
  more.push_back({"unknown", 1});
  EXPECT_THROW(m.restore(cbor::encode(cbor::map(std::move(more)))), Error);
  EXPECT_EQ(m.save(), before);
  m.restore(good);
  EXPECT_EQ(m.save(), good);
}

}  // namespace
}  // namespace discreet::conformance
