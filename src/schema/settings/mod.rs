//! Settings that are declared once: each key of a table with its meaning, type, default and range gives the member of a
//! struct, the code that reads it, its line in `bella list keys`, and its line in the resolved config.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use serde::Serialize;

use super::bounds::Bounds;
use super::choice::Choice;
use super::reader::{CommandLine, Field, Reader};

/// The names of other crates that `settings!` expands to, so that a caller needs no import.
#[doc(hidden)]
pub mod outside {
    pub use serde::{Serialize, Serializer};
    pub use toml::Table;
}

/// Settings of a table, or of a part of one, that can be written.
pub trait Resolved {
    /// Returns every key with its value, as the resolved config states them.
    fn resolved(&self) -> toml::Table;
}

/// Settings that a config may leave out as a whole.
impl<S: Resolved> Resolved for Option<S> {
    fn resolved(&self) -> toml::Table {
        self.as_ref().map_or_else(toml::Table::new, Resolved::resolved)
    }
}

impl<S: Resolved + ?Sized> Resolved for Box<S> {
    fn resolved(&self) -> toml::Table {
        self.as_ref().resolved()
    }
}

/// A type of values that keys have.
pub trait Setting: Serialize + Sized {
    /// The limits of a value; `()` for types whose values have none.
    type Range;

    /// Reads the value of `key`.
    fn field(reader: &Reader, key: &str, range: Self::Range) -> Field<Self>;

    /// Returns the value of a config with a mistake, which is refused before the value is used.
    fn stand_in() -> Self;

    /// Returns the value of a key without a default: such a key is required, unless the value is an option.
    fn undefaulted(field: Field<Self>) -> Self {
        field.required_by_rule(Self::stand_in())
    }
}

/// States for each type which method of a reader reads it.
macro_rules! read_by {
    ($($type:ty, $range:ty, |$reader:ident, $key:ident $(, $limits:ident)?| $read:expr;)*) => { $(
        impl Setting for $type {
            type Range = $range;

            fn field($reader: &Reader, $key: &str, read_by!(@name $($limits)?): $range) -> Field<$type> {
                $read
            }

            fn stand_in() -> $type {
                Default::default()
            }
        }
    )* };
    (@name) => { () };
    (@name $limits:ident) => { $limits };
}

read_by! {
    f64, Bounds, |reader, key, limits| reader.float(key, limits);
    i64, RangeInclusive<i64>, |reader, key, limits| reader.integer(key, limits);
    usize, RangeInclusive<usize>, |reader, key, limits| reader.count(key, limits);
    bool, (), |reader, key| reader.boolean(key);
    String, (), |reader, key| reader.string(key);
    PathBuf, (), |reader, key| reader.path(key);
    Vec<f64>, Bounds, |reader, key, limits| reader.floats_or_one(key, limits);
    Vec<i64>, RangeInclusive<i64>, |reader, key, limits| reader.integers(key, limits);
    Vec<String>, (), |reader, key| reader.strings(key);
}

impl<E: Choice> Setting for E {
    type Range = ();

    fn field(reader: &Reader, key: &str, (): ()) -> Field<E> {
        reader.choice(key)
    }

    fn stand_in() -> E {
        E::CHOICES[0].1
    }
}

impl<E: Choice> Setting for Vec<E> {
    type Range = ();

    fn field(reader: &Reader, key: &str, (): ()) -> Field<Vec<E>> {
        reader.choices(key)
    }

    fn stand_in() -> Vec<E> {
        Vec::new()
    }
}

impl Setting for CommandLine {
    type Range = ();

    fn field(reader: &Reader, key: &str, (): ()) -> Field<CommandLine> {
        reader.command(key)
    }

    fn stand_in() -> CommandLine {
        CommandLine::Program(Vec::new())
    }
}

impl<T: Setting> Setting for Option<T> {
    type Range = T::Range;

    fn field(reader: &Reader, key: &str, range: T::Range) -> Field<Option<T>> {
        T::field(reader, key, range).map(Some)
    }

    fn stand_in() -> Option<T> {
        None
    }

    fn undefaulted(field: Field<Option<T>>) -> Option<T> {
        field.optional().flatten()
    }
}

/// Converts a settings struct to a TOML table for the resolved config.
pub fn table(settings: &impl Serialize) -> toml::Table {
    match toml::Table::try_from(settings) {
        Ok(table) => table,
        Err(error) => unreachable!("settings structs are plain tables: {error}"),
    }
}

/// Adds a value to a table; `None` adds nothing.
pub fn put(table: &mut toml::Table, key: &'static str, value: &impl Serialize) {
    table.extend(self::table(&std::collections::BTreeMap::from([(key, value)])));
}

/// Calls `read`, whose argument's type is known to be a reader even if it is a closure.
pub fn read_by<T>(reader: &Reader, read: impl FnOnce(&Reader) -> T) -> T {
    read(reader)
}

/// Declares a struct of settings. Each member is a key of the table, and its documentation is the meaning that
/// `bella list keys` prints. A key without a default is required, unless its type is an option.
///
/// | after the type | meaning |
/// |---|---|
/// | `= VALUE` | the default, which may name members above |
/// | `, unset VALUE` | the value of an absent key, which the list of keys leaves empty: the meaning tells it |
/// | `, in RANGE` | the limits: `above(0.0)`, `at_least(0.0)`, `between(0.0, 1.0)`, `from_below(0.0, 1.0)`, `1..=9` |
/// | `, because TEXT` | the rule that the message about a missing key states; the meaning, if there is no other |
/// | `, by FUNCTION` | the function of a reader that reads the key |
/// | `, part FUNCTION` | the function that reads settings whose keys stand in the same table |
/// | `, given VALUE` | no key of a config |
/// | `, omit VALUE` | the value that the resolved config leaves out where it is the default, so that runs keep their identity |
///
/// A struct without members has no keys. `struct Name(x: X)` is read by `Name::read(reader, x)`. After `then check` at the end, `self.check(reader, x)` reports what
/// is wrong with several keys together.
#[macro_export]
macro_rules! settings {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident $(($($known:ident: $known_type:ty),+))? {
            $(
                $(#[doc = $meaning:literal])*
                $visible:vis $key:ident: $type:ty
                $(= $default:expr)?
                $(, unset $unset:expr)?
                $(, in $range:expr)?
                $(, because $because:expr)?
                $(, by $by:expr)?
                $(, part $part:expr)?
                $(, given $given:expr)?
                $(, omit $omitted:expr)?
                ;
            )*
        }
        $(then $check:ident)?
    ) => {
        $(#[$attribute])*
        $visibility struct $name { $($(#[doc = $meaning])* $visible $key: $type),* }

        impl $name {
            /// Reads these settings. Mistakes are recorded in the reader.
            #[allow(unused_imports, unused_variables)]
            $visibility fn read(reader: &$crate::schema::Reader $($(, $known: $known_type)+)?) -> $name {
                use $crate::schema::limits::*;
                $(let $key: $type = $crate::settings!(
                    @read reader, $key, $type, concat!($($meaning),*),
                    [$($default)?] [$($unset)?] [$($range)?] [$($because)?] [$($by)? $($part)?] [$($given)?]
                );)*
                let settings = $name { $($key),* };
                $crate::settings!(@check settings, [$($check)?] [reader $($(, $known)+)?]);
                settings
            }
        }

        impl $crate::schema::Resolved for $name {
            // Keys are borrowed here, so a default that borrows one of them does so twice.
            #[allow(unused_mut, unused_variables, clippy::needless_borrow)]
            fn resolved(&self) -> $crate::schema::outside::Table {
                let $name { $($key),* } = self;
                let mut table = $crate::schema::outside::Table::new();
                $($crate::settings!(
                    @write table, $key, $type, [$($part)?] [$($given)?] [$($omitted)?] [$($default)?]
                );)*
                table
            }
        }

        impl $crate::schema::outside::Serialize for $name {
            fn serialize<S>(&self, serializer: S) -> ::std::result::Result<S::Ok, S::Error>
            where
                S: $crate::schema::outside::Serializer,
            {
                $crate::schema::outside::Serialize::serialize(&$crate::schema::Resolved::resolved(self), serializer)
            }
        }
    };

    ($(#[$attribute:meta])* $visibility:vis struct $name:ident;) => {
        $(#[$attribute])*
        $visibility struct $name;

        impl $crate::schema::Resolved for $name {
            fn resolved(&self) -> $crate::schema::outside::Table {
                $crate::schema::outside::Table::new()
            }
        }
    };

    (@read $reader:ident, $key:ident, $type:ty, $about:expr, [] [] [] [] [] [$given:expr]) => { $given };
    (@read $reader:ident, $key:ident, $type:ty, $about:expr, [] [] [] [] [$by:expr] []) => {
        $crate::schema::read_by($reader, $by)
    };
    (@read $reader:ident, $key:ident, $type:ty, $about:expr, [$default:expr] [] [$($range:expr)?] [] [] []) => {
        $crate::settings!(@field $reader, $key, $type, $about, $($range)?).or_else(|| $default)
    };
    (@read $reader:ident, $key:ident, $type:ty, $about:expr, [] [$unset:expr] [$($range:expr)?] [] [] []) => {
        $crate::settings!(@field $reader, $key, $type, $about, $($range)?).optional().unwrap_or_else(|| $unset)
    };
    (@read $reader:ident, $key:ident, $type:ty, $about:expr, [] [] [$($range:expr)?] [$because:expr] [] []) => {
        $crate::settings!(@field $reader, $key, $type, $about, $($range)?)
            .required_or(<$type as $crate::schema::Setting>::stand_in(), $because)
    };
    (@read $reader:ident, $key:ident, $type:ty, $about:expr, [] [] [$($range:expr)?] [] [] []) => {
        $crate::schema::Setting::undefaulted($crate::settings!(@field $reader, $key, $type, $about, $($range)?))
    };
    (@field $reader:ident, $key:ident, $type:ty, $about:expr, $($range:expr)?) => {
        <$type as $crate::schema::Setting>::field($reader, stringify!($key), ($($range)?)).about($about.trim_start())
    };

    (@check $settings:ident, [] [$($argument:ident),*]) => {};
    (@check $settings:ident, [$check:ident] [$($argument:ident),*]) => { $settings.$check($($argument),*); };

    (@write $table:ident, $key:ident, $type:ty, [] [$given:expr] [] []) => {};
    (@write $table:ident, $key:ident, $type:ty, [$part:expr] [] [] []) => {
        $table.extend($crate::schema::Resolved::resolved($key));
    };
    (@write $table:ident, $key:ident, $type:ty, [] [] [$omitted:expr] []) => {
        if *$key != $omitted {
            $crate::schema::put(&mut $table, stringify!($key), $key);
        }
    };
    (@write $table:ident, $key:ident, $type:ty, [] [] [$omitted:expr] [$default:expr]) => {
        // An absent key means its default, which other keys may decide.
        let (omitted, default): ($type, $type) = ($omitted, $default);
        if *$key != omitted || default != omitted {
            $crate::schema::put(&mut $table, stringify!($key), $key);
        }
    };
    (@write $table:ident, $key:ident, $type:ty, [] [] [] [$($default:expr)?]) => {
        $crate::schema::put(&mut $table, stringify!($key), $key);
    };
}

pub use settings;

#[cfg(test)]
mod tests;
