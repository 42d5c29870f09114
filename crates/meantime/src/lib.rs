//! Meantime.
