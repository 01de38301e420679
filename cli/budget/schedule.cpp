#include "cli/budget/schedule.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "discreet/base/error.h"
#include "discreet/base/json_read_impl.h"

namespace discreet::cli {
namespace {

using nlohmann::json;

constexpr const char* kExample =
    R"({"noise_multiplier": 1.0, "sampling_rate": 0.01, "steps": 1000})";

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidDpConfig, "--schedule", sentence);
}

json parse_object(const std::string& line) {
  std::set<std::string> keys;
  const auto refuse_repeated_key = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && !keys.insert(parsed.get<std::string>()).second) {
      refuse(fmt::format("the key {} stands twice", parsed.dump()));
    }
    return true;
  };
  json object;
  try {
    object = read_json(line, refuse_repeated_key);
  } catch (const json::exception&) {
    refuse(fmt::format("this is not JSON; write {}", kExample));
  }
  if (!object.is_object()) refuse(fmt::format("expected a JSON object such as {}", kExample));
  return object;
}

ScheduledSteps parse_line(const std::string& line) {
  const json object = parse_object(line);
  for (const auto& [key, value] : object.items()) {
    if (key != "noise_multiplier" && key != "sampling_rate" && key != "steps") {
      refuse(fmt::format("the key '{}' is unknown; write {}", key, kExample));
    }
    if (!value.is_number()) refuse(fmt::format("{} is {}; give a number", key, value.dump()));
  }
  const auto number = [&](const char* key) {
    if (!object.contains(key))
      refuse(fmt::format("the key '{}' is missing; write {}", key, kExample));
    return object[key].get<double>();
  };
  const double steps = number("steps");
  if (!(steps >= 1 && steps <= 0x1p53) || steps != std::floor(steps)) {
    refuse(fmt::format("steps is {}; give a whole number from 1 to 2^53", object["steps"].dump()));
  }
  return {number("noise_multiplier"), number("sampling_rate"), static_cast<std::uint64_t>(steps)};
}

}  // namespace

void read_schedule(const std::string& path,
                   const std::function<void(const ScheduledSteps&)>& take) {
  std::ifstream file;
  if (path != "-") {
    file.open(path);
    if (!file) {
      throw Error(ErrorCode::kInvalidInput, "--schedule",
                  fmt::format("{} cannot be opened; does it exist?", path));
    }
  }
  std::istream& in = path == "-" ? std::cin : file;
  bool any = false;
  std::string line;
  for (std::uint64_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      take(parse_line(line));
      any = true;
    } catch (const Error& error) {
      throw Error(error.code(), error.op(),
                  fmt::format("line {} of {}: {}", number, path, error.sentence()));
    }
  }
  if (in.bad()) {
    throw Error(ErrorCode::kIoError, "--schedule",
                fmt::format("{} could not be read to its end", path));
  }
  if (!any) refuse(fmt::format("{} has no lines; write {}", path, kExample));
}

}  // namespace discreet::cli
