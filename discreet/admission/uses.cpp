#include "discreet/admission/uses.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <system_error>

#include "discreet/base/error.h"
#include "discreet/base/sqlite.h"

namespace discreet::admission {
namespace {

constexpr int kApplication = 0x64757365;  // "duse"
constexpr std::uint64_t kMostUses = std::uint64_t{1} << 32;

constexpr const char* kOperator = "UseStore";

// SQLite would create the file with the mode of the umask; this file is private to its owner from
// the start.
void make_private(const std::filesystem::path& path) {
  const int made = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (made >= 0) {
    ::close(made);
    return;
  }
  struct stat status {};
  if (errno != EEXIST || ::stat(path.c_str(), &status) != 0)
    io_error(kOperator, "cannot open {}: {}", path.string(),
             std::generic_category().message(errno));
  if ((status.st_mode & 077) != 0)
    io_error(kOperator, "others may read {} (mode {:o}), but uses are confidential; run: chmod 600",
             path.string(), status.st_mode & 07777);
}

// The number of a run or descriptor in its table, created if it is new.
std::uint64_t number_of(Database& database, std::string_view find, std::string_view add,
                        const Digest& digest) {
  Statement found = database.prepare(find);
  if (found.bind(1, digest).step()) return found.number(0);
  database.prepare(add).bind(1, digest).once();
  return database.last_row();
}

}  // namespace

UseStore::~UseStore() = default;
UseStore::UseStore(UseStore&&) noexcept = default;

UseStore::UseStore(const std::filesystem::path& path, int patience_ms) {
  make_private(path);
  database_ =
      std::make_unique<Database>(path, Database::Mode::kWrite, "store of uses", patience_ms);
  Database& db = *database_;
  db.run("PRAGMA journal_mode=DELETE; PRAGMA synchronous=EXTRA; PRAGMA fullfsync=ON;");
  db.transact([&] {
    const std::int64_t kind = db.number("PRAGMA application_id");
    const bool empty = db.number("SELECT count(*) FROM sqlite_master") == 0;
    if (kind != kApplication && !(kind == 0 && empty))
      malformed(kOperator, "{} is not a store of uses, but another database", path.string());
    if (!empty) return;
    db.run(
        fmt::format("PRAGMA application_id={};"
                    "CREATE TABLE runs(run INTEGER PRIMARY KEY, identity BLOB NOT NULL UNIQUE);"
                    "CREATE TABLE contributions(contribution INTEGER PRIMARY KEY,"
                    " descriptor BLOB NOT NULL UNIQUE, used INTEGER NOT NULL, cap INTEGER NOT NULL,"
                    " CHECK (used >= 0 AND used <= cap));"
                    // granted 0: requested and denied
                    "CREATE TABLE reservations(run INTEGER, step INTEGER, contribution INTEGER,"
                    " uses INTEGER NOT NULL, granted INTEGER NOT NULL,"
                    " PRIMARY KEY (run, step, contribution)) WITHOUT ROWID;",
                    kApplication)
            .c_str());
  });
}

std::vector<std::uint8_t> UseStore::reserve(const Digest& run, std::uint64_t step,
                                            std::span<const Claim> claims) {
  std::set<Digest> seen;
  for (const Claim& c : claims) {
    if (c.uses == 0 || c.uses > kMostUses || c.cap > kMostUses)
      invalid_input(kOperator, "a claim must have 1 to 2^32 uses and a cap of at most 2^32");
    if (!seen.insert(c.descriptor).second)
      invalid_input(kOperator, "{} is claimed twice in one step", to_hex(c.descriptor));
  }
  if (step >> 63 != 0) invalid_input(kOperator, "a step must be below 2^63");
  std::vector<std::uint8_t> granted;
  granted.reserve(claims.size());
  database_->transact([&] {
    const std::uint64_t run_number = number_of(*database_, "SELECT run FROM runs WHERE identity=?",
                                               "INSERT INTO runs(identity) VALUES(?)", run);
    for (const Claim& c : claims) granted.push_back(reserve(run_number, step, c) ? 1 : 0);
  });
  return granted;
}

bool UseStore::reserve(std::uint64_t run, std::uint64_t step, const Claim& claim) {
  std::uint64_t contribution = 0, used = 0;
  Statement find =
      database_->prepare("SELECT contribution, used, cap FROM contributions WHERE descriptor=?");
  if (find.bind(1, claim.descriptor).step()) {
    contribution = find.number(0);
    used = find.number(1);
    if (const std::uint64_t cap = find.number(2); cap != claim.cap)
      invalid_input(kOperator, "{} was claimed with cap {} before, but now with {}",
                    to_hex(claim.descriptor), cap, claim.cap);
  } else {
    database_->prepare("INSERT INTO contributions(descriptor, used, cap) VALUES(?, 0, ?)")
        .bind(1, claim.descriptor)
        .bind(2, claim.cap)
        .once();
    contribution = database_->last_row();
  }
  Statement earlier = database_->prepare(
      "SELECT uses, granted FROM reservations WHERE run=? AND step=? AND contribution=?");
  if (earlier.bind(1, run).bind(2, step).bind(3, contribution).step()) {
    if (const std::uint64_t uses = earlier.number(0); uses != claim.uses)
      invalid_input(kOperator, "step {} reserved {} uses of {} before, but now claims {}", step,
                    uses, to_hex(claim.descriptor), claim.uses);
    return earlier.number(1) != 0;
  }
  const bool fits = used <= claim.cap && claim.uses <= claim.cap - used;
  if (fits)
    database_->prepare("UPDATE contributions SET used=used+? WHERE contribution=?")
        .bind(1, claim.uses)
        .bind(2, contribution)
        .once();
  database_->prepare("INSERT INTO reservations VALUES(?, ?, ?, ?, ?)")
      .bind(1, run)
      .bind(2, step)
      .bind(3, contribution)
      .bind(4, claim.uses)
      .bind(5, std::uint64_t{fits})
      .once();
  return fits;
}

void UseStore::copy_to(const std::filesystem::path& path) const {
  const UseStore copy(path);  // creates the file, readable by its owner only
  database_->copy_into(*copy.database_);
}

std::uint64_t UseStore::used(const Digest& descriptor) const {
  Statement find = database_->prepare("SELECT used FROM contributions WHERE descriptor=?");
  return find.bind(1, descriptor).step() ? find.number(0) : 0;
}

}  // namespace discreet::admission
