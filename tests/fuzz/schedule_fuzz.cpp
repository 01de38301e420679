// Property of `account --schedule`, whatever the lines: kInvalidDpConfig, or steps in range.
#include "cli/budget/schedule.h"
#include "tests/fuzz/file.h"
#include "tests/fuzz/fuzz.h"

using discreet::ErrorCode;

std::vector<discreet::Bytes> fuzz::seeds() {
  std::vector<discreet::Bytes> out;
  for (const std::string_view text :
       {R"({"noise_multiplier": 1.0, "sampling_rate": 0.01, "steps": 1000})",
        "{\"noise_multiplier\":1e0,\"steps\":9007199254740992,\"sampling_rate\":1}\r\n\n"
        "{\"noise_multiplier\":0.5,\"steps\":1,\"sampling_rate\":1e-9}\n",
        R"({"steps": [[[1]]], "steps": -1e308, "\u0000": "\ud800"})"})
    out.emplace_back(text.begin(), text.end());
  return out;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::File file("schedule");
  file.put({data, size});
  fuzz::throws_only({ErrorCode::kInvalidDpConfig, ErrorCode::kMalformed}, [&] {
    discreet::cli::read_schedule(file.path(), [](const discreet::cli::ScheduledSteps& steps) {
      fuzz::require(steps.count >= 1 && steps.count <= std::uint64_t{1} << 53,
                    "a number of steps is out of range");
    });
  });
  return 0;
}
