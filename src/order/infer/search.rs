//! Searches for the generator behind an order's front.
