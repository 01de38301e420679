#include "discreet/base/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "discreet/base/error.h"
#include "discreet/base/text/utf8.h"

namespace discreet {
namespace {

constexpr std::size_t kLongestKey = 256;

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

[[noreturn]] void refuse(std::string_view name, int line, std::string_view sentence) {
  invalid_config("read_config", "{}",
                 line > 0 ? fmt::format("{}:{}: {}", name, line, sentence)
                          : fmt::format("{}: {}", name, sentence));
}

int line_at(std::string_view text, std::size_t position) {
  return 1 +
         static_cast<int>(std::count(text.begin(), text.begin() + std::ptrdiff_t(position), '\n'));
}

void check_bytes(std::string_view text, std::string_view name) {
  if (text.size() > kMaxConfigBytes) {
    refuse(name, 0,
           fmt::format("found {} bytes; a configuration has at most {}", text.size(),
                       kMaxConfigBytes));
  }
  if (const auto bad = find_bad_utf8(bytes_of(text))) {
    refuse(name, line_at(text, *bad), "this line is not UTF-8; save the file as UTF-8");
  }
  bool indenting = true;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '\t' && indenting) {
      refuse(name, line_at(text, i), "a tab indents this line; use spaces");
    }
    if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f) {
      refuse(name, line_at(text, i), fmt::format("control character 0x{:02x}; remove it", c));
    }
    indenting = c == '\n' || (indenting && c == ' ');
  }
}

// Builds the tree from the parser's events.
class Builder final : public YAML::EventHandler {
 public:
  explicit Builder(std::string_view name) : name_(name) {}

  Yaml root;
  bool any = false;

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (any) fail(mark, "a second document starts here; a configuration is one document");
    any = true;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    check(mark, "", anchor);
    add(mark, {});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail(mark, "aliases are not supported; write the value where it is used");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check(mark, tag, anchor);
    Yaml scalar;
    scalar.kind = Yaml::Kind::kScalar;
    scalar.text = value;
    scalar.quoted = tag == "!";
    add(mark, std::move(scalar));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(mark, tag, anchor, Yaml::Kind::kList);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin(mark, tag, anchor, Yaml::Kind::kMap);
  }
  void OnMapEnd() override { end(); }

 private:
  struct Open {
    Yaml node;
    std::optional<std::pair<std::string, int>> key;
    std::map<std::string, int, std::less<>> seen;
  };

  [[noreturn]] void fail(const YAML::Mark& mark, std::string_view sentence) const {
    refuse(name_, mark.line + 1, sentence);
  }
  void check(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) const {
    if (anchor != 0) fail(mark, "anchors (&) are not supported; write the value where it is used");
    if (!tag.empty() && tag != "?" && tag != "!") {
      fail(mark,
           fmt::format(
               "the tag {} is not supported; remove it, because the key determines the type", tag));
    }
  }
  void begin(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
             Yaml::Kind kind) {
    check(mark, tag, anchor);
    if (open_.size() >= kMaxConfigDepth) fail(mark, "nested too deeply");
    if (expects_key()) fail(mark, "a key is not plain text; use the name of a key");
    Open open;
    open.node.kind = kind;
    open.node.line = mark.line + 1;
    open_.push_back(std::move(open));
  }
  void end() {
    Yaml done = std::move(open_.back().node);
    open_.pop_back();
    place(std::move(done));
  }
  bool expects_key() const {
    return !open_.empty() && open_.back().node.kind == Yaml::Kind::kMap && !open_.back().key;
  }
  void add(const YAML::Mark& mark, Yaml node) {
    node.line = mark.line + 1;
    if (!expects_key()) return place(std::move(node));
    if (node.kind != Yaml::Kind::kScalar) fail(mark, "a key is empty or null; name the key");
    if (node.text.size() > kLongestKey || std::ranges::any_of(node.text, is_control))
      fail(mark, fmt::format("the key {} has more than one line or {} bytes; shorten it",
                             excerpt(node.text), kLongestKey));
    if (node.text == "<<") fail(mark, "merges (<<) are not supported; write the keys");
    Open& open = open_.back();
    const auto [first, is_new] = open.seen.emplace(node.text, node.line);
    if (!is_new) {
      fail(mark, fmt::format("the key {} is already given on line {}; keep one of them", node.text,
                             first->second));
    }
    open.key = {node.text, node.line};
  }
  void place(Yaml node) {
    if (open_.empty()) {
      root = std::move(node);
      return;
    }
    Open& open = open_.back();
    if (open.node.kind == Yaml::Kind::kList) {
      open.node.items.push_back(std::move(node));
      return;
    }
    open.node.entries.push_back({std::move(open.key->first), std::move(node), open.key->second});
    open.key.reset();
  }

  std::string_view name_;
  std::vector<Open> open_;
};

}  // namespace

Yaml parse_yaml(std::string_view text, std::string_view name) {
  check_bytes(text, name);
  Builder builder(name);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    refuse(name, error.mark.line + 1, fmt::format("this is not valid YAML: {}", error.msg));
  }
  return std::move(builder.root);
}

}  // namespace discreet
