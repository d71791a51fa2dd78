"""What Willow's firmware and its application server (WAS) say to each other over `/ws`: sans-IO."""
