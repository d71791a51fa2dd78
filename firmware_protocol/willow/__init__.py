"""Messages between Willow's firmware and its application server (WAS) over `/ws`, without I/O."""
