//! Declares the enums whose variants have names in records, metrics and messages.

/// Declares an enum from its variants and their names, so that each name is written once. The codes of the REST interface
/// have a macro with schemas and serde's names in the crate of its documents, which depends on no other crate.
macro_rules! named_enum {
    ($(#[$about:meta])+ $kind:ident { $($(#[$variant_about:meta])+ $variant:ident = $name:literal,)+ }) => {
        $(#[$about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $kind {
            $($(#[$variant_about])+ $variant,)+
        }

        impl $kind {
            /// Returns the name in records, metrics and messages.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($kind::$variant => $name,)+
                }
            }

            /// Returns the value with this name, or `None` if no value has it.
            pub fn from_name(name: &str) -> Option<$kind> {
                match name {
                    $($name => Some($kind::$variant),)+
                    _ => None,
                }
            }
        }

        impl ::std::fmt::Display for $kind {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(crate) use named_enum;
