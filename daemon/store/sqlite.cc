#include "daemon/store/sqlite.h"

namespace tidemark {

Sqlite::Sqlite(const std::string& path, int flags) {
  sqlite3* db = nullptr;
  opened_ = sqlite3_open_v2(path.c_str(), &db, flags | SQLITE_OPEN_NOMUTEX, nullptr) == SQLITE_OK;
  db_.reset(db);
}

std::string Sqlite::message() const {
  return db_ == nullptr ? "out of memory" : sqlite3_errmsg(db_.get());
}

bool Sqlite::Run(const std::string& sql) {
  return sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK;
}

int64_t Sqlite::Number(const std::string& sql, int64_t fallback) {
  Statement statement(*this, sql);
  return statement.Next() ? statement.Int(0) : fallback;
}

Statement::Statement(const Sqlite& db, std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  ok_ = sqlite3_prepare_v2(db.get(), sql.data(), static_cast<int>(sql.size()), &statement,
                           nullptr) == SQLITE_OK;
  statement_.reset(statement);
}

Statement& Statement::Bind(int64_t value) {
  ok_ = ok_ && sqlite3_bind_int64(statement_.get(), ++bound_, value) == SQLITE_OK;
  return *this;
}

Statement& Statement::Bind(std::string_view text) {
  ok_ = ok_ && sqlite3_bind_text(statement_.get(), ++bound_, text.data(),
                                 static_cast<int>(text.size()), SQLITE_STATIC) == SQLITE_OK;
  return *this;
}

Statement& Statement::BindBlob(std::string_view bytes) {
  ok_ = ok_ && sqlite3_bind_blob(statement_.get(), ++bound_, bytes.data(),
                                 static_cast<int>(bytes.size()), SQLITE_STATIC) == SQLITE_OK;
  return *this;
}

bool Statement::Next() {
  if (!ok_) return false;
  const int result = sqlite3_step(statement_.get());
  ok_ = result == SQLITE_ROW || result == SQLITE_DONE;
  return result == SQLITE_ROW;
}

void Statement::Reset() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_.get());
  bound_ = 0;
  ok_ = true;
}

std::string_view Statement::Bytes(int column) const {
  const void* bytes = sqlite3_column_blob(statement_.get(), column);
  const int size = sqlite3_column_bytes(statement_.get(), column);
  return bytes == nullptr
             ? std::string_view()
             : std::string_view(static_cast<const char*>(bytes), static_cast<size_t>(size));
}

}  // namespace tidemark
