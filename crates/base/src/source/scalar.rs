//! Lets scalars with a meaning (`FileMode`, `Seconds`, ...) be fields of typed arguments.
//!
//! They ask the deserializer for a newtype struct named `SCALAR`. Our own deserializer hands out the
//! text of the scalar, or, when the text is still a template, a unit that stands for "later".

use std::{borrow::Cow, fmt, marker::PhantomData, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};

use crate::model::{Base64, ByteSize, CpuSet, DiskName, FileMode, ParseScalarError, Seconds, Version};

pub(super) const SCALAR: &str = "$etcdrun::scalar";

struct ScalarVisitor<T>(PhantomData<T>);

impl<'de, T> Visitor<'de> for ScalarVisitor<T>
where
    T: FromStr<Err = ParseScalarError> + Default,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a scalar")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    /// JSON hands out what is inside.
    fn visit_newtype_struct<D: Deserializer<'de>>(self, inside: D) -> Result<T, D::Error> {
        inside.deserialize_str(self)
    }

    fn visit_unit<E: de::Error>(self) -> Result<T, E> {
        Ok(T::default())
    }
}

macro_rules! scalar {
    ($type:ty, $name:literal, $schema:tt) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_newtype_struct(SCALAR, ScalarVisitor(PhantomData))
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

scalar!(FileMode, "FileMode", {
    "type": "string",
    "description": "Permission bits: octal and quoted (\"0644\") or symbolic (u=rw,g=r)."
});
scalar!(Base64, "Base64", {
    "type": "string",
    "description": "Bytes in base64."
});
scalar!(ByteSize, "ByteSize", {
    "type": ["string", "integer"],
    "description": "Bytes, or a number with a unit: 512MiB, 20GiB."
});
scalar!(CpuSet, "CpuSet", {
    "type": ["string", "integer"],
    "description": "Processors: numbers and ranges, like 0-3,8."
});
scalar!(DiskName, "DiskName", {
    "type": "string",
    "description": "A name of up to 20 letters, digits, `-`, `_` and `.`."
});
scalar!(Seconds, "Duration", {
    "type": ["string", "number"],
    "description": "Seconds, or a number with a unit: 250ms, 30s, 5m, 2h."
});
scalar!(Version, "Version", {
    "type": "string",
    "description": "A full version of etcd: 3.5.34."
});
