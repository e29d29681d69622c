//! The two ways vocabularies spell a byte: byte-level BPE's alphabet of printable characters, and `<0x0A>`.

/// The character that byte-level BPE writes for `byte`: itself where it is printable Latin-1, else the next free
/// code point from U+0100 on, counted in byte order.
pub fn char_of_byte(byte: u8) -> char {
    let code = match byte {
        0..=0x20 => 0x100 + u32::from(byte),
        0x7F..=0xA0 => 0x121 + u32::from(byte - 0x7F),
        0xAD => 0x143,
        printable => u32::from(printable),
    };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte that `c` stands for in byte-level BPE's alphabet.
pub(crate) fn byte_of_char(c: char) -> Option<u8> {
    match c as u32 {
        code @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8), // bytes 0x00 to 0x20
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7F) as u8), // bytes 0x7F to 0xA0
        0x143 => Some(0xAD),
        _ => None,
    }
}

/// The bytes of a byte-level BPE token; a token with a character outside the alphabet is taken literally.
pub(crate) fn bytes_of_piece(piece: &str) -> Vec<u8> {
    piece.chars().map(byte_of_char).collect::<Option<Vec<u8>>>().unwrap_or_else(|| piece.as_bytes().to_vec())
}

/// The byte that a piece like `<0x0A>` spells.
pub(crate) fn byte_of_hex_piece(piece: &[u8]) -> Option<u8> {
    let digits = piece.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    let &[high, low] = digits else { return None };
    let value = (high as char).to_digit(16)? * 16 + (low as char).to_digit(16)?;
    Some(value as u8)
}

/// The piece that spells `byte` in hex.
pub(crate) fn hex_piece(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_character_of_its_own_and_comes_back() {
        for byte in 0..=255 {
            assert_eq!(byte_of_char(char_of_byte(byte)), Some(byte));
        }
    }

    #[test]
    fn a_space_is_written_with_a_dotted_capital_g() {
        assert_eq!(char_of_byte(b' '), 'Ġ');
        assert_eq!(char_of_byte(b'\n'), 'Ċ');
    }

    #[test]
    fn a_hex_piece_is_exactly_two_digits_in_angle_brackets() {
        assert_eq!(byte_of_hex_piece(b"<0x0A>"), Some(10));
        assert_eq!(byte_of_hex_piece(hex_piece(255).as_bytes()), Some(255));
        for other in ["<0x0>", "<0x00A>", "<0xGG>", "0x0A", "<0x+1>", ""] {
            assert_eq!(byte_of_hex_piece(other.as_bytes()), None, "{other}");
        }
    }
}
