//! Status of an ABI call, scope of a failure, and reason of a refusal.

macro_rules! codes {
    ($(#[$doc:meta])* $name:ident : $repr:ty { $($(#[$vdoc:meta])* $variant:ident = $num:literal,)* } unknown = $unknown:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr($repr)]
        pub enum $name { $($(#[$vdoc])* $variant = $num,)* }

        impl $name {
            /// All codes: C name suffix and number, in order.
            pub const TABLE: &'static [(&'static str, $repr)] = &[$((stringify!($variant), $num),)*];

            /// The code with this number; an unknown number reads as the catch-all.
            pub const fn from_code(code: $repr) -> Self {
                match code { $($num => Self::$variant,)* _ => Self::$unknown }
            }

            /// The number across the ABI.
            pub const fn code(self) -> $repr { self as $repr }
        }
    };
}

codes! {
    /// Status that an ABI call returns. Unknown numbers mean [`Status::Internal`].
    Status: i32 {
        /// Done, or enqueued without an error so far.
        Ok = 0,
        /// The plugin does not do this; nothing happened.
        Unsupported = 1,
        /// The host broke a rule of the contract.
        Invalid = 2,
        /// Device memory ran out; by `bytes_requested` and `bytes_available`.
        OomDevice = 3,
        /// Host memory ran out.
        OomHost = 4,
        /// The device is gone.
        DeviceLost = 5,
        /// Work is still going on.
        NotReady = 6,
        /// The run was cancelled by the host.
        Cancelled = 7,
        /// Versions do not fit.
        Incompatible = 8,
        /// A plan no longer fits its bindings; create it again.
        PlanStale = 9,
        /// Anything else.
        Internal = 10,
    } unknown = Internal
}

codes! {
    /// How far a failure reaches: what is still usable afterwards.
    Scope: u32 {
        /// Nothing is broken; only this call failed.
        Call = 0,
        /// Destroy and recreate the backend (stream).
        Stream = 1,
        /// Close and open the device.
        Device = 2,
        /// Quarantine the plugin.
        Plugin = 3,
    } unknown = Plugin
}

codes! {
    /// Why `supports` refused a node.
    Reason: u8 {
        /// Not refused.
        None = 0,
        /// The op itself.
        Op = 1,
        /// An operand's dtype.
        Type = 2,
        /// An operand's shape.
        Shape = 3,
        /// An operand's strides.
        Stride = 4,
        /// A sealed operand's layout.
        Layout = 5,
        /// A parameter's value, or a parameter or source newer than the plugin.
        Param = 6,
        /// The op's version.
        Version = 7,
        /// Not enough memory.
        Memory = 8,
    } unknown = Op
}

impl core::fmt::Display for Reason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Reason::None => "none",
            Reason::Op => "op",
            Reason::Type => "type",
            Reason::Shape => "shape",
            Reason::Stride => "stride",
            Reason::Layout => "layout",
            Reason::Param => "param",
            Reason::Version => "version",
            Reason::Memory => "memory",
        })
    }
}
