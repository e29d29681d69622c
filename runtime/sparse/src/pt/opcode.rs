//! The opcodes of pickles that tensors need, and how many bytes follow each.

/// What follows an opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    /// Nothing.
    None,
    /// That many bytes.
    Bytes(usize),
    /// A length of one byte, then that many.
    Short,
    /// A length of four bytes, then that many.
    Long,
    /// Two lines: a module and a name.
    Lines,
}

macro_rules! opcodes {
    ($($name:ident = $byte:literal $operand:expr;)*) => {
        /// An opcode.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Opcode { $($name,)* }

        impl Opcode {
            /// The opcode of this byte.
            pub fn of(byte: u8) -> Option<Opcode> {
                match byte { $($byte => Some(Opcode::$name),)* _ => None }
            }

            /// What follows it.
            pub fn operand(self) -> Operand {
                match self { $(Opcode::$name => $operand,)* }
            }
        }
    };
}

opcodes! {
    Proto = 0x80 Operand::Bytes(1);
    Frame = 0x95 Operand::Bytes(8);
    Stop = b'.' Operand::None;

    Mark = b'(' Operand::None;
    Pop = b'0' Operand::None;
    PopMark = b'1' Operand::None;
    Dup = b'2' Operand::None;

    None = b'N' Operand::None;
    True = 0x88 Operand::None;
    False = 0x89 Operand::None;
    Int1 = b'K' Operand::Bytes(1);
    Int2 = b'M' Operand::Bytes(2);
    Int4 = b'J' Operand::Bytes(4);
    Long1 = 0x8a Operand::Short;
    Float = b'G' Operand::Bytes(8);
    Text = b'X' Operand::Long;
    ShortText = 0x8c Operand::Short;
    String = b'T' Operand::Long;
    ShortString = b'U' Operand::Short;

    EmptyTuple = b')' Operand::None;
    Tuple = b't' Operand::None;
    Tuple1 = 0x85 Operand::None;
    Tuple2 = 0x86 Operand::None;
    Tuple3 = 0x87 Operand::None;
    EmptyList = b']' Operand::None;
    Append = b'a' Operand::None;
    Appends = b'e' Operand::None;
    EmptyDict = b'}' Operand::None;
    SetItem = b's' Operand::None;
    SetItems = b'u' Operand::None;

    Global = b'c' Operand::Lines;
    StackGlobal = 0x93 Operand::None;
    PersistentId = b'Q' Operand::None;
    Reduce = b'R' Operand::None;
    Build = b'b' Operand::None;

    Put1 = b'q' Operand::Bytes(1);
    Put4 = b'r' Operand::Bytes(4);
    Memoize = 0x94 Operand::None;
    Get1 = b'h' Operand::Bytes(1);
    Get4 = b'j' Operand::Bytes(4);
}
