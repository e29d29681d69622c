//! A metadata value: GGUF's thirteen types, and their conversions.

use std::fmt;

/// One metadata value. Strings that are not UTF-8 are decoded lossily.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// An array value: elements of one type, stored flat; arrays of arrays are kept as `Nested`.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Vec<String>),
    Nested(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

macro_rules! value_types {
    ($($variant:ident $array:ident = $id:literal $name:literal;)*) => {
        /// The type of a value, with its number in the file.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u32)]
        #[allow(missing_docs)]
        pub enum ValueType { $($variant = $id,)* }

        impl ValueType {
            /// All types, by number.
            pub const ALL: &'static [ValueType] = &[$(ValueType::$variant,)*];

            /// The type with this number in a file.
            pub fn from_id(id: u32) -> Option<ValueType> {
                match id { $($id => Some(ValueType::$variant),)* _ => None }
            }

            fn name(self) -> &'static str {
                match self { $(ValueType::$variant => $name,)* }
            }
        }

        impl Value {
            /// The type of this value.
            pub fn value_type(&self) -> ValueType {
                match self { $(Value::$variant(_) => ValueType::$variant,)* }
            }
        }

        impl Array {
            /// The type of the elements.
            pub fn element_type(&self) -> ValueType {
                match self { $(Array::$array(_) => ValueType::$variant,)* }
            }

            /// How many elements there are.
            pub fn len(&self) -> usize {
                match self { $(Array::$array(v) => v.len(),)* }
            }
        }
    };
}

value_types! {
    U8 U8 = 0 "u8";
    I8 I8 = 1 "i8";
    U16 U16 = 2 "u16";
    I16 I16 = 3 "i16";
    U32 U32 = 4 "u32";
    I32 I32 = 5 "i32";
    F32 F32 = 6 "f32";
    Bool Bool = 7 "bool";
    String String = 8 "str";
    Array Nested = 9 "array";
    U64 U64 = 10 "u64";
    I64 I64 = 11 "i64";
    F64 F64 = 12 "f64";
}

impl Value {
    /// The value as a number of any width, if it is an integer.
    pub fn as_int(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// What error messages give as found: the type, and the number if it is one.
    pub(crate) fn describe(&self) -> String {
        match (self, self.as_int()) {
            (_, Some(v)) => format!("{} {v}", self.value_type()),
            (Value::Array(a), _) => format!("array of {} {}", a.len(), a.element_type()),
            _ => self.value_type().to_string(),
        }
    }
}

impl Array {
    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as integers of type `T`, if they are integers and all fit.
    pub fn to_ints<T: TryFrom<i128>>(&self) -> Option<Vec<T>> {
        fn convert<S: Copy + Into<i128>, T: TryFrom<i128>>(v: &[S]) -> Option<Vec<T>> {
            v.iter().map(|&x| T::try_from(x.into()).ok()).collect()
        }
        match self {
            Array::U8(v) => convert(v),
            Array::I8(v) => convert(v),
            Array::U16(v) => convert(v),
            Array::I16(v) => convert(v),
            Array::U32(v) => convert(v),
            Array::I32(v) => convert(v),
            Array::U64(v) => convert(v),
            Array::I64(v) => convert(v),
            _ => None,
        }
    }

    /// The elements as f32, if they are numbers; wide ones are rounded.
    pub fn to_f32s(&self) -> Option<Vec<f32>> {
        match self {
            Array::F32(v) => Some(v.clone()),
            Array::F64(v) => Some(v.iter().map(|&x| x as f32).collect()),
            _ => Some(self.to_ints::<i128>()?.into_iter().map(|x| x as f32).collect()),
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
