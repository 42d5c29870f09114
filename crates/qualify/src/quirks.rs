//! What Meantime does otherwise for certain models.

/// A model with what it does, and what Meantime does about it.
#[derive(Debug)]
pub struct Quirk {
    /// The beginning of Identify Controller's Model Number.
    pub model: &'static str,
    /// What the device does, and what Meantime does.
    pub what: &'static str,
}

/// The quirks known; none so far.
pub const QUIRKS: &[Quirk] = &[];

/// The quirks of `model`.
pub(crate) fn of(model: &str) -> Vec<&'static str> {
    QUIRKS.iter().filter(|quirk| model.starts_with(quirk.model)).map(|quirk| quirk.what).collect()
}
