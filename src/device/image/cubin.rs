//! The machine code of a cubin: an ELF file with a section of 16-byte instructions for each kernel, and for each device
//! function that is compiled apart from its callers.

use std::collections::{HashMap, HashSet};

use object::elf::EM_CUDA;
use object::read::elf::{ElfFile64, FileHeader};
use object::{
    LittleEndian, Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex, SectionKind,
    SymbolKind, SymbolSection,
};

use super::{FIRST_SM, Found, no_kernel};

type Elf<'a> = ElfFile64<'a, LittleEndian>;

/// The last architecture whose opcodes are known. `nvdisasm --binary` of CUDA 13.0 gives those below the same names on
/// every one from sm_90 on, and no other opcode these names.
const LAST_SM: u32 = 121;

/// The low bits of an instruction, without its predicate.
const OPCODE: u64 = 0xfff;
/// `ACQBULK`: `griddepcontrol.wait`.
const ACQBULK: u64 = 0x82e;
/// `PREEXIT`: `griddepcontrol.launch_dependents`.
const PREEXIT: u64 = 0x82d;
/// Calls of an address in a register or in constant memory.
const CALL_THROUGH: [u64; 3] = [0x343, 0x344, 0xb43];
/// A call of an absolute address, which a relocation fills in.
const CALL_ABSOLUTE: u64 = 0x943;
/// A call relative to the instruction.
const CALL_RELATIVE: u64 = 0x944;
/// In the upper half of the last two: the address is in a uniform register.
const UNIFORM: u64 = 1 << 27;

pub(super) fn scan(image: &[u8], kernel: &str) -> Result<Found, String> {
    let bad = |error: object::Error| format!("the cubin cannot be read: {error}");
    let elf = Elf::parse(image).map_err(bad)?;
    let header = elf.elf_header();
    if header.e_machine(LittleEndian) != EM_CUDA {
        return Err("the ELF file is not for a GPU".into());
    }
    // Since CUDA 13, the second byte has the architecture.
    let shift = if header.e_ident().abi_version >= 8 { 8 } else { 0 };
    let sm = (header.e_flags(LittleEndian).0 >> shift) & 0xff;
    let entry = elf.symbols().find(|s| s.kind() == SymbolKind::Text && s.name() == Ok(kernel));
    let entry = entry.and_then(|symbol| symbol.section_index()).ok_or_else(|| no_kernel(kernel))?;
    match sm {
        ..FIRST_SM => return Ok(Found::default()),
        FIRST_SM..=LAST_SM => {}
        _ => return Err(format!("the machine code of sm_{sm} is not known")),
    }
    let (mut found, mut seen, mut open) = (Found::default(), HashSet::from([entry]), vec![entry]);
    while let Some(section) = open.pop() {
        let reached = search(&elf, section, &mut found).map_err(bad)?;
        open.extend(reached.into_iter().filter(|&section| seen.insert(section)));
    }
    Ok(found)
}

/// The target of a relocation: a function of the image, or the name of one that it does not have.
enum Target<'a> {
    Code(SectionIndex),
    Missing(&'a str),
}

/// Searches a section, and returns those with functions whose addresses it uses.
fn search(elf: &Elf, section: SectionIndex, found: &mut Found) -> object::Result<Vec<SectionIndex>> {
    let section = elf.section_by_index(section)?;
    let mut targets = HashMap::new();
    for (offset, relocation) in section.relocations() {
        let RelocationTarget::Symbol(index) = relocation.target() else { continue };
        let symbol = elf.symbol_by_index(index)?;
        let is_code = |index| elf.section_by_index(index).is_ok_and(|s| s.kind() == SectionKind::Text);
        match symbol.section() {
            SymbolSection::Section(index) if is_code(index) => {
                targets.insert(offset, Target::Code(index));
            }
            SymbolSection::Undefined if symbol.kind() == SymbolKind::Text => {
                targets.insert(offset, Target::Missing(symbol.name()?));
            }
            _ => {}
        }
    }
    for (instruction, offset) in section.data()?.chunks_exact(16).zip((0u64..).step_by(16)) {
        let half = |at| instruction[at..at + 8].iter().rev().fold(0, |word, &b| (word << 8) | u64::from(b));
        let opcode = half(0) & OPCODE;
        let unseen = match (opcode, targets.get(&offset)) {
            (ACQBULK, _) => {
                found.wait = true;
                None
            }
            (PREEXIT, _) => {
                found.trigger = true;
                None
            }
            (CALL_ABSOLUTE | CALL_RELATIVE, Some(Target::Code(_))) => None,
            (CALL_ABSOLUTE | CALL_RELATIVE, Some(Target::Missing(name))) => {
                Some(format!("it calls `{name}`, which is not in the image"))
            }
            // Without a relocation, the function is part of the section.
            (CALL_RELATIVE, None) if half(8) & UNIFORM == 0 => None,
            _ if CALL_THROUGH.contains(&opcode) || [CALL_ABSOLUTE, CALL_RELATIVE].contains(&opcode) => {
                Some("it calls a function through a pointer".into())
            }
            _ => None,
        };
        found.unseen = found.unseen.take().or(unseen);
    }
    let code = |target| match target {
        Target::Code(section) => Some(section),
        Target::Missing(_) => None,
    };
    Ok(targets.into_values().filter_map(code).collect())
}
