// Scopes named Optimizer.step#..., by a USER_SCOPE callback of at::RecordFunction.
//
// at::RecordFunctionCallback is passed by value and its layout is not in the symbol's name, so it
// is tried first: a scope of our own must arrive once under its name, and a scope of another kind
// must not arrive. Where this version offers no way to try, the first names that arrive decide: an
// operator's name means that the layout does not hold. When it does not, the callback is given
// back.
#pragma once

#include <cstdint>

#include "wire/region.h"

namespace tidemark::agent {

// Takes the callback when libtorch is there and has not been tried. Not on a thread of the job that
// is inside the framework.
void TakeOptimizerScopes();

void GiveBackOptimizerScopes();

wire::FeatureState OptimizerScopesState(const char** reason);

}  // namespace tidemark::agent
