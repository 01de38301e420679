#pragma once

#include <sqlite3.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "discreet/base/bytes.h"

namespace fuzz {

// SQLite files, altered by instructions: one of a fuzzer's input, or of a seeded generator. Rows
// are altered through SQL, so that the file stays a sound database; then its bytes as they are.
// Shares nothing with the code under test but SQLite.
class EditedDatabase {
 public:
  explicit EditedDatabase(discreet::Bytes honest) : honest_(std::move(honest)) {}

  // One instruction is 6 bytes and as many more as its last one says: what, two numbers, a length.
  // What does not apply, or breaks a constraint, alters nothing.
  discreet::Bytes edited(discreet::ByteView instructions) const {
    Sql rows(honest_);
    std::vector<Instruction> later;
    while (instructions.size() >= 6) {
      Instruction i{static_cast<Kind>(instructions[0] % kKinds),
                    std::size_t{instructions[1]} | std::size_t{instructions[2]} << 8,
                    std::size_t{instructions[3]} | std::size_t{instructions[4]} << 8,
                    {}};
      const std::size_t length = std::min<std::size_t>(instructions[5], instructions.size() - 6);
      i.bytes.assign(instructions.begin() + 6,
                     instructions.begin() + 6 + static_cast<std::ptrdiff_t>(length));
      instructions = instructions.subspan(6 + length);
      if (i.kind < kFirstRowEdit) {
        later.push_back(std::move(i));
      } else {
        rows.apply(i);
      }
      if (later.size() + rows.applied > 16) break;
    }
    discreet::Bytes out = rows.applied == 0 ? honest_ : rows.bytes();
    for (const Instruction& i : later) apply(i, out);
    return out;
  }

  // The honest file with one row of another file, in the place that it has there or instead of
  // another; none if that breaks a constraint.
  discreet::Bytes with_row_of(const discreet::Bytes& other, std::size_t table,
                              std::size_t row) const {
    Sql rows(honest_);
    rows.splice(other, table, row);
    return rows.bytes();
  }

  // Every row of every table as a plain SQLite reader sees them; the cells of `joined` end to end,
  // because how a ledger cuts its leaves into rows means nothing. Empty if it cannot be read.
  static discreet::Bytes rows_of(const discreet::Bytes& file, const std::string& joined = "") {
    Sql sql(file);
    discreet::Bytes out;
    for (const auto& named : sql.tables()) {
      const std::string& table = named.first;
      discreet::Bytes cells;
      const bool ok = sql.each("SELECT * FROM \"" + table + "\" ORDER BY 1", [&](sqlite3_stmt* s) {
        for (int c = table == joined ? 1 : 0; c < sqlite3_column_count(s); ++c) {
          const auto* data = static_cast<const std::uint8_t*>(sqlite3_column_blob(s, c));
          const auto size = static_cast<std::size_t>(sqlite3_column_bytes(s, c));
          if (table != joined) {
            const std::string head =
                std::to_string(sqlite3_column_type(s, c)) + ":" + std::to_string(size) + ":";
            cells.insert(cells.end(), head.begin(), head.end());
          }
          if (size > 0) cells.insert(cells.end(), data, data + size);
        }
      });
      if (!ok) return {};
      out.insert(out.end(), table.begin(), table.end());
      out.insert(out.end(), cells.begin(), cells.end());
    }
    return out;
  }

 private:
  enum Kind : std::uint8_t {
    kOverwrite,
    kFlip,
    kCut,
    kCopyBlock,
    kSwapPages,
    kFirstRowEdit,
    kSetCell = kFirstRowEdit,
    kSetNumber,
    kSpliceCell,
    kFlipCell,
    kCutCell,
    kCopyCell,
    kDrop,
    kDouble,
    kSwapKeys,
    kKinds
  };
  struct Instruction {
    Kind kind;
    std::size_t a, b;
    discreet::Bytes bytes;
  };

  static void apply(const Instruction& i, discreet::Bytes& file) {
    if (file.empty()) return;
    const std::size_t at = (i.a << 4 ^ i.b) % file.size();
    constexpr std::size_t kPage = 4096;
    switch (i.kind) {
      case kOverwrite:
        for (std::size_t n = 0; n < i.bytes.size() && at + n < file.size(); ++n)
          file[at + n] = i.bytes[n];
        break;
      case kFlip: file[at] ^= static_cast<std::uint8_t>(1u << i.b % 8); break;
      case kCut: file.resize(at); break;
      case kCopyBlock: {
        const std::size_t from = i.b % file.size(), size = 1 + i.a % 256;
        for (std::size_t n = 0; n < size && at + n < file.size() && from + n < file.size(); ++n)
          file[at + n] = file[from + n];
        break;
      }
      default: {
        const std::size_t pages = file.size() / kPage;
        if (pages == 0) break;
        std::swap_ranges(file.begin() + static_cast<std::ptrdiff_t>(i.a % pages * kPage),
                         file.begin() + static_cast<std::ptrdiff_t>((i.a % pages + 1) * kPage),
                         file.begin() + static_cast<std::ptrdiff_t>(i.b % pages * kPage));
      }
    }
  }

  class Sql {
   public:
    int applied = 0;

    explicit Sql(const discreet::Bytes& file) {
      sqlite3_open(":memory:", &db_);
      load(file, "main");
    }
    ~Sql() { sqlite3_close(db_); }
    Sql(const Sql&) = delete;
    Sql& operator=(const Sql&) = delete;

    discreet::Bytes bytes() const {
      sqlite3_int64 size = 0;
      unsigned char* data = sqlite3_serialize(db_, "main", &size, 0);
      discreet::Bytes out(data, data + size);
      sqlite3_free(data);
      return out;
    }

    template <class F>
    bool each(const std::string& query, F&& row) {
      sqlite3_stmt* s = nullptr;
      int code = sqlite3_prepare_v2(db_, query.c_str(), -1, &s, nullptr);
      while (code == SQLITE_OK || code == SQLITE_ROW) {
        code = sqlite3_step(s);
        if (code == SQLITE_ROW) row(s);
      }
      sqlite3_finalize(s);
      return code == SQLITE_DONE;
    }

    void splice(const discreet::Bytes& other, std::size_t table, std::size_t row) {
      run("ATTACH ':memory:' AS other");
      load(other, "other");
      const auto all = tables();
      const std::string name = "\"" + all[table % all.size()].first + "\"";
      run("INSERT OR REPLACE INTO main." + name + " SELECT * FROM other." + name +
          " ORDER BY 1 LIMIT 1 OFFSET " + std::to_string(row) + " % (SELECT count(*) FROM other." +
          name + ")");
    }

    using Table = std::pair<std::string, std::vector<std::string>>;
    std::vector<Table> tables() {
      std::vector<Table> out;
      each("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name", [&](auto* s) {
        out.push_back({reinterpret_cast<const char*>(sqlite3_column_text(s, 0)), {}});
      });
      for (auto& [table, columns] : out)
        each("SELECT name FROM pragma_table_info('" + table + "')", [&, &names = columns](auto* s) {
          names.push_back(reinterpret_cast<const char*>(sqlite3_column_text(s, 0)));
        });
      return out;
    }

    // a chooses table and column, b the row and, where there are two, the other row.
    void apply(const Instruction& i) {
      const auto all = tables();
      if (all.empty()) return;
      const auto& [name, columns] = all[i.a % all.size()];
      const std::string table = "\"" + name + "\"", key = "\"" + columns[0] + "\"",
                        cell = "\"" + columns[i.a / all.size() % columns.size()] + "\"";
      std::uint64_t rows = 0;
      each("SELECT count(*) FROM " + table,
           [&](auto* s) { rows = static_cast<std::uint64_t>(sqlite3_column_int64(s, 0)); });
      if (rows == 0) return;
      const auto nth = [&](std::uint64_t n) {
        return "(SELECT " + key + " FROM " + table + " ORDER BY 1 LIMIT 1 OFFSET " +
               std::to_string(n % rows) + ")";
      };
      const std::string here = " WHERE " + key + " = " + nth(i.b % 256),
                        other = " WHERE " + key + " = " + nth(i.b / 256),
                        update = "UPDATE " + table + " SET " + cell + " = ";
      const std::string as_was = "CASE typeof(" + cell + ") WHEN 'text' THEN ";
      const auto typed = [&](const std::string& blob) {  // strict tables take a cell's own type
        return as_was + "CAST(" + blob + " AS TEXT) WHEN 'integer' THEN " + cell + " ELSE CAST(" +
               blob + " AS BLOB) END";
      };
      const std::string at = std::to_string(i.b / 256),
                        given = "x'" + discreet::to_hex(i.bytes) + "'";
      switch (i.kind) {
        case kSetCell: run(update + typed(given) + here); break;
        case kSetNumber: {
          std::int64_t number = 0;
          const std::size_t length = std::min<std::size_t>(8, i.bytes.size());
          if (length > 0) std::memcpy(&number, i.bytes.data(), length);
          run(update + std::to_string(number) + here + " AND typeof(" + cell + ") = 'integer'");
          break;
        }
        case kSpliceCell:
          run(update +
              typed("substr(CAST(" + cell + " AS BLOB), 1, " + at + ") || " + given +
                    " || substr(CAST(" + cell + " AS BLOB), " + at + " + 1)") +
              here);
          break;
        case kFlipCell: flip(name, cell, here, i); break;
        case kCutCell:
          run(update + typed("substr(CAST(" + cell + " AS BLOB), 1, " + at + ")") + here);
          break;
        case kCopyCell:
          run(update + "(SELECT " + cell + " FROM " + table + other + ")" + here);
          break;
        case kDrop: run("DELETE FROM " + table + here); break;
        case kDouble: {
          std::string rest;
          for (std::size_t c = 1; c < columns.size(); ++c) rest += ", \"" + columns[c] + "\"";
          run("INSERT INTO " + table + " SELECT " +
              (i.bytes.empty() ? "(SELECT max(" + key + ") + 1 FROM " + table + ")"
                               : std::to_string(i.bytes[0])) +
              rest + " FROM " + table + here);
          break;
        }
        default:
          run("UPDATE " + table + " SET " + key + " = -1" + here);
          run("UPDATE " + table + " SET " + key + " = " + nth(i.b % 256) + other);
      }
      ++applied;
    }

   private:
    void load(const discreet::Bytes& file, const char* schema) {
      auto* copy = static_cast<std::uint8_t*>(sqlite3_malloc64(file.size() + 1));
      if (!file.empty()) std::memcpy(copy, file.data(), file.size());
      const auto size = static_cast<sqlite3_int64>(file.size());
      sqlite3_deserialize(db_, schema, copy, size, size,
                          SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE);
    }
    void run(const std::string& statement) {
      sqlite3_exec(db_, statement.c_str(), nullptr, nullptr, nullptr);
    }
    void flip(const std::string& table, const std::string& cell, const std::string& here,
              const Instruction& i) {
      discreet::Bytes value;
      int type = 0;
      each("SELECT " + cell + " FROM \"" + table + "\"" + here, [&](auto* s) {
        type = sqlite3_column_type(s, 0);
        const auto* data = static_cast<const std::uint8_t*>(sqlite3_column_blob(s, 0));
        value.assign(data, data + sqlite3_column_bytes(s, 0));
      });
      if (value.empty() || type == SQLITE_INTEGER) return;
      const std::size_t at = (i.b / 256 * 31 + i.a) % value.size();
      value[at] ^= i.bytes.empty() ? 1 : i.bytes[0];
      run("UPDATE \"" + table + "\" SET " + cell + " = CAST(x'" + discreet::to_hex(value) +
          "' AS " + (type == SQLITE_TEXT ? "TEXT" : "BLOB") + ")" + here);
    }
    sqlite3* db_ = nullptr;
  };

  discreet::Bytes honest_;
};

}  // namespace fuzz
