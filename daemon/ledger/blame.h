// Which frame of a stack a person should look at first: the innermost one that is their own code.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/snapshot/node_snapshot.h"

namespace tidemark {

// Whether a frame belongs to an installed library, the standard library, the interpreter or the
// framework, and not to the job's own code. `module` is the file that a native frame was mapped
// from (its FrameView::file may name the source instead).
bool IsLibraryFrame(const FrameView& frame, std::string_view module);

// Index of the innermost Python frame of the job's own code; else of the innermost such native
// frame; else of the innermost Python frame; else of the innermost that is not the driver's or the
// runtime's; else 0. `modules` goes with `frames`.
size_t BlamedFrame(const std::vector<FrameView>& frames, const std::vector<std::string>& modules);

// The library that allocates on its own account, where the innermost frame outside driver and
// runtime is such a library's: "communicator (libnccl.so.2)"; empty for everybody else.
std::string OwnAccount(const std::vector<FrameView>& frames,
                       const std::vector<std::string>& modules);

}  // namespace tidemark
