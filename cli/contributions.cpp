#include "cli/contributions.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "discreet/base/error.h"
#include "discreet/run/files.h"

namespace discreet::cli {
namespace {

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidInput, "input", sentence);
}

// Calls take(number, object) for every line that is not empty.
template <class F>
void each_line(const std::string& path, F take) {
  std::istringstream lines(read_input(path));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \r\t") == std::string::npos) continue;
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object()) refuse(fmt::format("{}:{}: the line is no JSON object", path, number));
    take(number, object);
  }
}

Bytes hex_member(const nlohmann::json& object, const char* name, bool needed,
                 const std::string& where) {
  const auto at = object.find(name);
  if (at == object.end() || at->is_null()) {
    if (!needed) return {};
    refuse(fmt::format("{}: there is no \"{}\"", where, name));
  }
  if (!at->is_string()) refuse(fmt::format("{}: \"{}\" is no text", where, name));
  try {
    return from_hex(at->get<std::string>());
  } catch (const Error& error) {
    refuse(fmt::format("{}: \"{}\": {}", where, name, error.sentence()));
  }
}

}  // namespace

std::string read_input(const std::string& path) {
  if (::access(path.c_str(), R_OK) != 0)
    refuse(fmt::format("'{}' cannot be opened: {}", path, std::strerror(errno)));
  if (std::filesystem::is_directory(path))
    refuse(fmt::format("'{}' is a directory; give a file", path));
  const Bytes bytes = run::read_file(path);
  return {bytes.begin(), bytes.end()};
}

std::vector<Anchored> read_anchors(const std::string& path) {
  std::vector<Anchored> out;
  each_line(path, [&](int line, const nlohmann::json& object) {
    const std::string where = fmt::format("{}:{}", path, line);
    out.push_back({line,
                   {hex_member(object, "descriptor", true, where),
                    hex_member(object, "attestation", false, where)}});
  });
  return out;
}

admission::Statements read_statements(const std::string& path) {
  std::vector<Bytes> all;
  if (path.empty()) return {};
  each_line(path, [&](int line, const nlohmann::json& object) {
    all.push_back(hex_member(object, "statement", true, fmt::format("{}:{}", path, line)));
  });
  return admission::decode_statements(all);
}

void append_lines(const std::string& path, const std::string& lines) {
  std::string text = ::access(path.c_str(), F_OK) == 0 ? read_input(path) : std::string();
  if (!text.empty() && text.back() != '\n') text += '\n';
  run::write_atomically(path, bytes_of(text + lines));
}

std::string read_passphrase(const std::string& path) {
  if (path.empty()) return {};
  std::string text = read_input(path);
  text.resize(std::min(text.find_first_of("\r\n"), text.size()));
  if (text.empty()) refuse(fmt::format("'{}' has no passphrase in its first line", path));
  return text;
}

admission::SigningKey read_key(const std::string& path, const std::string& passphrase_file) {
  return admission::SigningKey::from_pem(read_input(path), read_passphrase(passphrase_file));
}

}  // namespace discreet::cli
