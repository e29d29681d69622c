//! A small reader of ELF files: machine, the manifest section, and the symbols a file imports.
//!
//! Every offset and count in the file is distrusted; a hostile file gets an error or an empty answer. Tables of the
//! System V ABI: file header 64 bytes, section header 64, symbol 24 (all for 64-bit files).

/// A file that looks like a shared object for this machine.
pub struct Elf<'a> {
    bytes: &'a [u8],
    sections: Vec<Section>,
    names: Section,
}

#[derive(Clone, Copy, Default)]
struct Section {
    name: u32,
    kind: u32,
    offset: u64,
    size: u64,
    link: u32,
}

/// `e_machine` of the machine this runs on.
const MACHINE: u16 = match () {
    _ if cfg!(target_arch = "x86_64") => 62,
    _ if cfg!(target_arch = "aarch64") => 183,
    _ if cfg!(target_arch = "riscv64") => 243,
    _ if cfg!(target_arch = "loongarch64") => 258,
    _ if cfg!(target_arch = "powerpc64") => 21,
    _ if cfg!(target_arch = "s390x") => 22,
    _ => 0,
};

const SHARED_OBJECT: u16 = 3;
const SECTION_HEADER: usize = 64;
const SYMBOL: usize = 24;
const DYNAMIC_SYMBOLS: u32 = 11;
/// Section of a symbol that another file defines.
const UNDEFINED: u16 = 0;
const NO_BITS: u32 = 8;
/// More than any real plugin has; bounds the work a hostile file can cause.
const MAX_SECTIONS: usize = 4096;
const MAX_SYMBOLS: usize = 1 << 20;

impl<'a> Elf<'a> {
    /// Reads the header and the section table (checklist step 2).
    pub fn parse(bytes: &'a [u8]) -> Result<Elf<'a>, String> {
        let ident = bytes.get(..16).ok_or("not an ELF file: shorter than its header")?;
        if ident[..4] != *b"\x7fELF" {
            return Err("not an ELF file".into());
        }
        let class = if cfg!(target_pointer_width = "64") { 2 } else { 1 };
        if ident[4] != class || class != 2 {
            return Err(format!("ELF class {}; this machine needs {class} (64-bit is 2)", ident[4]));
        }
        let order = if cfg!(target_endian = "little") { 1 } else { 2 };
        if ident[5] != order {
            return Err(format!(
                "ELF byte order {}; this machine needs {order} (little-endian is 1)",
                ident[5]
            ));
        }
        let file = Reader(bytes);
        let kind = file.u16(16)?;
        if kind != SHARED_OBJECT {
            return Err(format!("ELF type {kind}; a shared object ({SHARED_OBJECT}) is needed"));
        }
        let machine = file.u16(18)?;
        if machine != MACHINE {
            return Err(format!("built for ELF machine {machine}; this is {MACHINE}"));
        }
        Elf::read_sections(file)
    }

    fn read_sections(file: Reader<'a>) -> Result<Elf<'a>, String> {
        let start = file.u64(40)?;
        let (entry, n, names) = (file.u16(58)? as usize, file.u16(60)? as usize, file.u16(62)? as usize);
        if n == 0 || n > MAX_SECTIONS || entry != SECTION_HEADER {
            return Err(format!(
                "{n} section headers of {entry} bytes; 1 to {MAX_SECTIONS} of 64 are accepted"
            ));
        }
        let section = |i: usize| {
            let at = usize::try_from(start).ok().and_then(|s| s.checked_add(i * SECTION_HEADER));
            let at = at.ok_or("section headers past the end of the file")?;
            let header = file.array::<SECTION_HEADER>(at)?;
            let header = Reader(&header);
            Ok(Section {
                name: header.u32(0)?,
                kind: header.u32(4)?,
                offset: header.u64(24)?,
                size: header.u64(32)?,
                link: header.u32(40)?,
            })
        };
        let sections = (0..n).map(section).collect::<Result<Vec<_>, String>>()?;
        let names = *sections.get(names).ok_or_else(|| format!("section names in section {names} of {n}"))?;
        Ok(Elf { bytes: file.0, sections, names })
    }

    /// The bytes of the section with this name.
    pub fn section(&self, name: &str) -> Option<&'a [u8]> {
        let names = self.contents(&self.names)?;
        self.contents(self.sections.iter().find(|s| is_text(names, s.name, name))?)
    }

    /// The name, or the beginning of a long one, of the first symbol that begins with `prefix` and is expected of
    /// another file.
    pub fn undefined_symbol(&self, prefix: &str) -> Result<Option<String>, String> {
        const SHOWN: usize = 128;
        self.find_symbol(|section, name| {
            let is_found = section == UNDEFINED && name.starts_with(prefix.as_bytes());
            is_found.then(|| {
                let shown = name.iter().take(SHOWN).take_while(|&&b| b != 0);
                String::from_utf8_lossy(&shown.copied().collect::<Vec<_>>()).into_owned()
            })
        })
    }

    /// Whether the file defines a symbol of this name for others.
    pub fn defines(&self, name: &str) -> Result<bool, String> {
        let found =
            self.find_symbol(|section, rest| (section != UNDEFINED && is_text(rest, 0, name)).then_some(()));
        Ok(found?.is_some())
    }

    /// The first answer of `look`, which gets each dynamic symbol's section, and the table of names from the symbol's
    /// name on. Nothing is copied: names may overlap, and a small file can have a million long ones.
    fn find_symbol<T>(&self, mut look: impl FnMut(u16, &[u8]) -> Option<T>) -> Result<Option<T>, String> {
        let mut n_left = MAX_SYMBOLS;
        for table in self.sections.iter().filter(|s| s.kind == DYNAMIC_SYMBOLS) {
            let symbols = self.contents(table).ok_or("symbol table past the end of the file")?;
            let names = self.sections.get(table.link as usize).and_then(|s| self.contents(s));
            let names = names.ok_or("symbol names past the end of the file")?;
            if names.last().is_some_and(|&last| last != 0) {
                return Err("symbol names that do not end in NUL".into());
            }
            for symbol in symbols.chunks_exact(SYMBOL) {
                n_left = n_left.checked_sub(1).ok_or_else(|| {
                    format!("more than {MAX_SYMBOLS} dynamic symbols; build it with hidden visibility")
                })?;
                let symbol = Reader(symbol);
                let (name, section) = (symbol.u32(0)?, symbol.u16(6)?);
                if name != 0 {
                    let name = names.get(name as usize..).filter(|name| !name.is_empty());
                    let name = name.ok_or("a symbol's name past the end of its table")?;
                    if let Some(found) = look(section, name) {
                        return Ok(Some(found));
                    }
                }
            }
        }
        Ok(None)
    }

    /// The linker's number for this build of the file, if it wrote one.
    pub fn build_id(&self) -> Option<&'a [u8]> {
        // Note: name size, descriptor size, type; name padded to 4; descriptor.
        let note = self.section(".note.gnu.build-id")?;
        let header = Reader(note);
        let (name, n) = (header.u32(0).ok()? as usize, header.u32(4).ok()? as usize);
        let start = name.checked_next_multiple_of(4)?.checked_add(12)?;
        note.get(start..start.checked_add(n)?).filter(|id| !id.is_empty())
    }

    fn contents(&self, s: &Section) -> Option<&'a [u8]> {
        if s.kind == NO_BITS {
            return None;
        }
        let start = usize::try_from(s.offset).ok()?;
        self.bytes.get(start..start.checked_add(usize::try_from(s.size).ok()?)?)
    }
}

/// Whether the NUL-terminated text at an offset of a string table is this one.
fn is_text(table: &[u8], at: u32, text: &str) -> bool {
    let rest = table.get(at as usize..).and_then(|rest| rest.strip_prefix(text.as_bytes()));
    rest.is_some_and(|rest| rest.first() == Some(&0))
}

/// Numbers at offsets, in this machine's byte order.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&self, at: usize) -> Result<[u8; N], String> {
        let bytes = at.checked_add(N).and_then(|end| self.0.get(at..end));
        let array = bytes.and_then(|b| b.try_into().ok());
        array.ok_or_else(|| format!("broken ELF file: byte {at} is past its {}", self.0.len()))
    }

    fn u16(&self, at: usize) -> Result<u16, String> {
        self.array(at).map(u16::from_ne_bytes)
    }

    fn u32(&self, at: usize) -> Result<u32, String> {
        self.array(at).map(u32::from_ne_bytes)
    }

    fn u64(&self, at: usize) -> Result<u64, String> {
        self.array(at).map(u64::from_ne_bytes)
    }
}
