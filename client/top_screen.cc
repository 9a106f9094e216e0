#include "client/top_screen.h"

#include <langinfo.h>
#include <ncurses.h>
#include <unistd.h>

#include <chrono>
#include <clocale>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "client/top_view.h"

namespace tidemark::client {
namespace {

using namespace std::chrono_literals;

// The newest snapshot, handed from the feed's thread to the screen's.
class Mailbox {
 public:
  void Put(v1::Snapshot snapshot) {
    std::lock_guard lock(mutex_);
    snapshot_ = std::move(snapshot);
  }
  void SetTrouble(std::string why) {
    std::lock_guard lock(mutex_);
    trouble_ = std::move(why);
  }
  // Moves what is new into `view`; whether there was anything.
  bool MoveTo(TopView& view) {
    std::lock_guard lock(mutex_);
    const bool any = snapshot_ || trouble_;
    if (snapshot_) view.Take(*std::exchange(snapshot_, std::nullopt));
    if (trouble_) view.SetTrouble(*std::exchange(trouble_, std::nullopt));
    return any;
  }

  void Stop() {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  bool stopping() {
    std::lock_guard lock(mutex_);
    return stopping_;
  }
  // Waits before another try to connect.
  void Rest() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 1s, [&] { return stopping_; });
  }
  void Finish() {
    std::lock_guard lock(mutex_);
    finished_ = true;
    changed_.notify_all();
  }
  bool WaitFinished(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return finished_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<v1::Snapshot> snapshot_;
  std::optional<std::string> trouble_;
  bool stopping_ = false;
  bool finished_ = false;
};

void Feed(Result<Connection> connection, const TopFeed& feed, Mailbox& mailbox) {
  const auto interval_ns = static_cast<uint64_t>(feed.interval_seconds * 1e9);
  while (!mailbox.stopping()) {
    if (connection) {
      uint64_t next_ns = 0;
      (void)connection->WatchSnapshots(feed.request, [&](const v1::Snapshot& received) {
        if (received.monotonic_ns() >= next_ns) {
          next_ns = received.monotonic_ns() + interval_ns - interval_ns / 10;
          v1::Snapshot snapshot = received;
          feed.choose(snapshot);
          mailbox.Put(std::move(snapshot));
        }
        return !mailbox.stopping();
      });
    }
    if (mailbox.stopping()) break;
    mailbox.SetTrouble("The daemon is gone; these figures are old. Connecting again ...");
    mailbox.Rest();
    connection = feed.connect();
  }
  mailbox.Finish();
}

chtype AttributeOf(Look look) {
  switch (look) {
    case Look::kPlain:
      return A_NORMAL;
    case Look::kTitle:
      return A_BOLD;
    case Look::kHeader:
      return A_BOLD | A_UNDERLINE;
    case Look::kSelected:
      return A_REVERSE;
    case Look::kFaint:
      return A_DIM;
    case Look::kLeak:
      return COLOR_PAIR(1) | A_BOLD;
    case Look::kWarning:
      return COLOR_PAIR(2);
  }
  return A_NORMAL;
}

void Draw(const TopView& view) {
  erase();
  const auto lines = view.Lines(static_cast<size_t>(LINES), static_cast<size_t>(COLS));
  for (size_t row = 0; row < lines.size(); ++row) {
    attrset(AttributeOf(lines[row].look));
    std::string text = lines[row].text;
    if (lines[row].look == Look::kSelected) text += "  ";
    mvaddstr(static_cast<int>(row), 0, text.c_str());
  }
  attrset(A_NORMAL);
  refresh();
}

std::optional<TopKey> KeyOf(int key) {
  switch (key) {
    case KEY_UP:
    case 'k':
      return TopKey::kUp;
    case KEY_DOWN:
    case 'j':
      return TopKey::kDown;
    case KEY_PPAGE:
      return TopKey::kPageUp;
    case KEY_NPAGE:
      return TopKey::kPageDown;
    case '\n':
    case '\r':
    case KEY_ENTER:
    case KEY_RIGHT:
      return TopKey::kEnter;
    case 27:  // Escape
    case KEY_LEFT:
    case KEY_BACKSPACE:
    case 127:
      return TopKey::kBack;
    case 's':
      return TopKey::kSort;
    case 'r':
      return TopKey::kReverse;
    case 'f':
      return TopKey::kJob;
    case 'a':
      return TopKey::kMoment;
    default:
      return std::nullopt;
  }
}

}  // namespace

bool RunTopScreen(Connection* first, const TopFeed& feed) {
  const char* term = std::getenv("TERM");
  const bool drawable = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1 &&
                        term != nullptr && std::strcmp(term, "dumb") != 0;
  std::setlocale(LC_CTYPE, "");
  SCREEN* const screen = drawable ? newterm(nullptr, stdout, stdin) : nullptr;
  if (screen == nullptr) return false;
  const bool unicode = std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  cbreak();
  noecho();
  keypad(stdscr, TRUE);
  set_escdelay(50);
  timeout(100);
  curs_set(0);
  if (has_colors() && std::getenv("NO_COLOR") == nullptr) {
    start_color();
    use_default_colors();
    init_pair(1, COLOR_RED, -1);
    init_pair(2, COLOR_YELLOW, -1);
  }

  Mailbox mailbox;
  std::thread feeder([&, connection = Result<Connection>(std::move(*first))]() mutable {
    Feed(std::move(connection), feed, mailbox);
  });
  TopView view(unicode);
  Draw(view);
  while (true) {
    const int key = getch();
    if (key == 'q') break;
    const std::optional<TopKey> known = KeyOf(key);
    if (known) view.Press(*known);
    if (mailbox.MoveTo(view) || known || key == KEY_RESIZE) Draw(view);
  }
  endwin();
  delscreen(screen);
  mailbox.Stop();
  // The stream notices with the next tick. One that has stopped would never come.
  if (!mailbox.WaitFinished(2s)) {
    std::fflush(nullptr);
    ::_exit(0);
  }
  feeder.join();
  return true;
}

}  // namespace tidemark::client
