// SQLite as values: a connection and a statement that close themselves. Each belongs to one thread
// at a time. A failure stays readable in the connection until the next call.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tidemark {

class Sqlite {
 public:
  Sqlite() = default;
  // Check ok(): even a connection that failed can say why.
  Sqlite(const std::string& path, int flags);

  bool ok() const { return db_ != nullptr && opened_; }
  sqlite3* get() const { return db_.get(); }
  bool Run(const std::string& sql);
  // The only number of the only row; `fallback` when there is none.
  int64_t Number(const std::string& sql, int64_t fallback = 0);

  int error() const { return db_ == nullptr ? SQLITE_NOMEM : sqlite3_errcode(db_.get()); }
  std::string message() const;
  // The file is no database or contradicts itself: nothing that can be waited out.
  bool damaged() const { return error() == SQLITE_CORRUPT || error() == SQLITE_NOTADB; }

 private:
  struct Close {
    void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
  };
  std::unique_ptr<sqlite3, Close> db_;
  bool opened_ = false;
};

// Values are bound from left to right. What is bound as text or blob must outlive Next.
class Statement {
 public:
  Statement(const Sqlite& db, std::string_view sql);

  Statement& Bind(int64_t value);
  Statement& Bind(std::string_view text);
  Statement& BindBlob(std::string_view bytes);

  // To the next row; false at the end and on failure, which ok() tells apart.
  bool Next();
  // Without rows: done, or failed.
  bool Run() { return !Next() && ok(); }
  bool ok() const { return ok_; }
  void Reset();

  int64_t Int(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  // Valid until the next call.
  std::string_view Bytes(int column) const;

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int bound_ = 0;
  bool ok_ = false;
};

}  // namespace tidemark
