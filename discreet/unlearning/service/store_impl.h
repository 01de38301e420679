#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "discreet/base/hash.h"
#include "discreet/unlearning/engines/engine.h"

namespace discreet {
class Database;
}

namespace discreet::unlearning {

// The file of a service: one SQLite database, readable by its owner only, with the live records,
// the engine's state, and the requests and answers. The store enforces no rules; service.h does.
//
// Rollback journal, synchronous=FULL, one process at a time; deleted contents are overwritten in
// the file. Errors as in base/sqlite.h; a failed transaction leaves the file unchanged.
class ModelStore {
 public:
  enum class Mode { kCreate, kOpen };
  // kCreate: throws kInvalidInput if the path exists. kOpen: throws kInvalidInput if it does not.
  ModelStore(const std::filesystem::path& path, Mode mode);
  ~ModelStore();

  // Marks the file, so that builds that know no form of records do not open it.
  void require_form_reader();

  // One durable transaction; if `work` throws, it is rolled back.
  void transact(const std::function<void()>& work);
  std::uint64_t commits() const noexcept { return commits_; }  // so far, by this object

  // Named values.
  std::optional<Bytes> get(std::string_view name);
  void put(std::string_view name, ByteView value);
  void drop(std::string_view name);
  std::uint64_t number(std::string_view name);  // 0 if absent
  void put_number(std::string_view name, std::uint64_t value);

  // Live records; `row` is dimension + 1 doubles, the label last.
  void add_record(RecordId id, std::string_view subject, const std::vector<double>& row);
  void drop_record(RecordId id);
  std::vector<RecordId> records_of(std::string_view subject);
  std::vector<double> row(RecordId id);
  using Visit = std::function<void(RecordId, std::string_view subject, const std::vector<double>&)>;
  void each_record(const Visit& visit);  // ascending by id

  // The request of that name.
  struct Request {
    std::uint64_t kind;   // 0 insert, 1 delete
    std::uint64_t first;  // insert: completed rows; delete: its first deletion
    std::uint64_t count;  // delete: number of deletions
    Digest digest;        // of the content of the request
  };
  std::optional<Request> request(std::string_view name);
  void put_request(std::string_view name, const Request& request);

  // Deletions, numbered from 0: the ledger's entry, and its opening.
  struct DeletionRow {
    Bytes entry, salt;
    std::vector<RecordId> records;
  };
  void add_deletion(std::uint64_t number, const DeletionRow& row);
  std::vector<DeletionRow> deletions(std::uint64_t first, std::uint64_t count);

 private:
  std::unique_ptr<Database> db_;
  std::uint64_t commits_ = 0;
};

}  // namespace discreet::unlearning
