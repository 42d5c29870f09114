//! Kinds of values: how a key's text becomes the value of a field, and the description of such
//! texts.

use std::marker::PhantomData;
use std::time::Duration;

use super::super::error::Why;
use super::super::{Extent, Job, value};

/// A remark on a value that is accepted.
pub(crate) type Remark = Option<&'static str>;

/// A kind of value.
pub(super) trait Kind {
    /// The type of the value.
    type Value;
    /// Parses a text.
    fn read(&self, text: &str) -> Result<(Self::Value, Remark), Why>;
    /// Describes the texts that it accepts.
    fn takes(&self) -> String;
}

/// A field of the job, and how a key's text is stored there.
#[derive(Clone, Copy)]
pub(in crate::job) struct Field {
    /// Parses the text and stores the value.
    pub set: fn(&mut Job, &str) -> Result<Remark, Why>,
    /// Copies the value from another job, which has nothing set.
    pub reset: fn(&mut Job, &Job),
    /// Whether the value differs from another job's.
    pub differs: fn(&Job, &Job) -> bool,
    /// Describes the accepted texts. Any job can be passed.
    pub takes: fn(&Job) -> String,
}

/// `field!(path.in.job, kind)`.
macro_rules! field {
    ($($name:ident).+, $kind:expr) => {
        Field {
            set: |job, text| {
                let (value, remark) = $crate::job::keys::kind::Kind::read(&$kind, text)?;
                job.$($name).+ = value;
                Ok(remark)
            },
            reset: |job, plain| job.$($name).+.clone_from(&plain.$($name).+),
            differs: |job, plain| job.$($name).+ != plain.$($name).+,
            takes: |job| $crate::job::keys::kind::takes(&$kind, &job.$($name).+),
        }
    };
}
pub(super) use field;

/// Describes the texts that a kind accepts. The value selects the type of number.
pub(super) fn takes<K: Kind>(kind: &K, _: &K::Value) -> String {
    kind.takes()
}

/// A whole number.
pub(super) struct Int<T> {
    min: u64,
    max: u64,
    unit: &'static str,
    of: PhantomData<T>,
}

/// fio's int.
pub(super) const INT_MAX: u64 = u32::MAX as u64;

/// Returns the kind of a whole number from `min` to `max`.
pub(super) const fn int<T>(min: u64, max: u64) -> Int<T> {
    Int { min, max, unit: "", of: PhantomData }
}

/// Returns the kind of a whole number of `unit`, up to fio's maximum.
pub(super) const fn count<T>(min: u64, unit: &'static str) -> Int<T> {
    Int { min, max: INT_MAX, unit, of: PhantomData }
}

impl<T: TryFrom<u64>> Kind for Int<T> {
    type Value = T;

    fn read(&self, text: &str) -> Result<(T, Remark), Why> {
        let number = value::int(text, self.min, self.max)?;
        let number = T::try_from(number).map_err(|_| "too large".to_owned())?;
        Ok((number, None))
    }

    fn takes(&self) -> String {
        let of = if self.unit.is_empty() { "" } else { " of " };
        let range = match (self.min, self.max) {
            (min, max) if max < INT_MAX => format!(" from {min} to {max}"),
            (0, _) => ", or 0".to_owned(),
            _ => String::new(),
        };
        format!("a number{of}{}{range}", self.unit)
    }
}

/// One of several words. fio's numbers for them are accepted, too.
pub(super) struct Words<T: 'static>(pub &'static [(&'static str, T)]);

impl<T: Copy> Kind for Words<T> {
    type Value = T;

    fn read(&self, text: &str) -> Result<(T, Remark), Why> {
        let found = self.0.iter().find(|(word, _)| *word == text);
        let (_, value) = found.ok_or_else(|| format!("expected {}", self.takes()))?;
        Ok((*value, None))
    }

    fn takes(&self) -> String {
        let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
        let words: Vec<&str> =
            self.0.iter().map(|(word, _)| *word).filter(|word| !is_number(word)).collect();
        match words.split_last() {
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => String::new(),
        }
    }
}

/// A kind that only one or two keys have, with its description and its parser.
pub(super) struct By<T>(pub &'static str, pub fn(&str) -> Result<T, Why>);

impl<T> Kind for By<T> {
    type Value = T;

    fn read(&self, text: &str) -> Result<(T, Remark), Why> {
        (self.1)(text).map(|value| (value, None))
    }

    fn takes(&self) -> String {
        self.0.to_owned()
    }
}

/// Like [`By`], for values that may come with a remark.
pub(super) struct Noted<T>(pub &'static str, pub fn(&str) -> Result<(T, Remark), Why>);

impl<T> Kind for Noted<T> {
    type Value = T;

    fn read(&self, text: &str) -> Result<(T, Remark), Why> {
        (self.1)(text)
    }

    fn takes(&self) -> String {
        self.0.to_owned()
    }
}

/// A boolean.
pub(super) const FLAG: By<bool> = By("1 or 0", value::boolean);
/// The kind of fio's time, for which a number without a unit is in seconds.
pub(super) const SECONDS: By<Duration> =
    By("a time such as 2 (seconds) or 500ms", |text| value::time_in(text, 1_000_000));
/// The kind of fio's short time, for which a number without a unit is in microseconds.
pub(super) const MICROSECONDS: By<Duration> =
    By("a time such as 10 (microseconds) or 1ms", |text| value::time_in(text, 1));
/// Bytes, in whole sectors.
pub(super) const BYTES: By<u64> =
    By("a size such as 4k", |text| Ok(value::whole_sectors(value::size(text)?)?.bytes));
/// A length above 0.
pub(super) const LENGTH: Noted<Extent> = Noted(EXTENT, |text| match value::extent(text)? {
    (Extent::Bytes(0) | Extent::Percent(0), _) => Err("must be more than 0".to_owned()),
    length => Ok(length),
});
/// A start offset on the device.
pub(super) const OFFSET: Noted<Extent> = Noted(EXTENT, |text| match value::extent(text)? {
    (Extent::Percent(100), _) => Err("nothing is left after the whole device".to_owned()),
    offset => Ok(offset),
});

const EXTENT: &str = "a size such as 1g or 20%";

/// A value that may be absent.
pub(super) struct Opt<K>(pub K);
/// Like [`Opt`], but 0 is absent, too.
pub(super) struct Unless0<K>(pub K);

impl<K: Kind> Kind for Opt<K> {
    type Value = Option<K::Value>;

    fn read(&self, text: &str) -> Result<(Self::Value, Remark), Why> {
        self.0.read(text).map(|(value, remark)| (Some(value), remark))
    }

    fn takes(&self) -> String {
        self.0.takes()
    }
}

impl<K: Kind<Value: Default + PartialEq>> Kind for Unless0<K> {
    type Value = Option<K::Value>;

    fn read(&self, text: &str) -> Result<(Self::Value, Remark), Why> {
        let (value, remark) = self.0.read(text)?;
        Ok((Some(value).filter(|value| *value != K::Value::default()), remark))
    }

    fn takes(&self) -> String {
        self.0.takes()
    }
}
