// Keys that do nothing make two names for one layout: the planner knows the plain one.
#pragma once
#include "copus/parallel/layout.h"

namespace copus::detail {

inline bool is_plain(const Layout& layout) {
  return (layout.pp > 1 || layout.virtual_stages == 1) &&
         (layout.tp > 1 || !layout.sequence_parallel);
}

}  // namespace copus::detail
