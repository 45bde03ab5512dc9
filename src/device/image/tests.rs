use super::*;

/// The low halves of instructions, as `nvdisasm -hex` of CUDA 13.0 shows them for sm_90a.
const NOP: u64 = 0x7918;
const ACQBULK: u64 = 0x782e;
const PREEXIT_IF_P1: u64 = 0x182d;
const CALL_ABSOLUTE: u64 = 0x7943;
const CALL_RELATIVE: u64 = 0x1c_7944;
const CALL_R2: u64 = 0x0200_7343;

const SM90: (u32, u32) = (9, 0);

/// A function of a cubin: its name, its code, and the calls in it that are relocated (instruction, callee).
struct Code<'a>(&'a str, &'a [u64], &'a [(u64, &'a str)]);

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A section of an ELF file.
#[derive(Default)]
struct Section {
    name: u64,
    kind: u64,
    flags: u64,
    link: u64,
    info: u64,
    entry_bytes: u64,
    data: Vec<u8>,
}

/// Names in a string table.
struct Names(Vec<u8>);

impl Names {
    fn add(&mut self, name: &str) -> u64 {
        let place = self.0.len() as u64;
        self.0.extend(name.bytes().chain([0]));
        place
    }
}

/// An executable ELF file with these functions: as CUDA 13 writes it (`abi` 8), or as older versions do (7).
fn cubin(sm: u64, abi: u8, functions: &[Code]) -> Vec<u8> {
    let mut names = Names(vec![0]);
    // After the empty section, the strings and the symbols come those with code, then their relocations.
    const FIRST: usize = 3;
    let (mut symbols, mut known, mut sections) = (vec![0; 3], Vec::new(), Vec::new());
    for (section, Code(name, code, _)) in (FIRST as u64..).zip(functions) {
        symbols.extend([names.add(name) | (0x12 << 32) | (section << 48), 0, 16 * code.len() as u64]);
        known.push(*name);
        let code: Vec<u64> = code.iter().flat_map(|&low| [low, 0x000f_e200_0000_0000]).collect();
        let name = names.add(&format!(".text.{name}"));
        sections.push(Section { name, kind: 1, flags: 6, data: bytes(&code), ..Section::default() });
    }
    for (section, Code(name, _, calls)) in (FIRST as u64..).zip(functions) {
        let mut table = Vec::new();
        for (instruction, callee) in *calls {
            if !known.contains(callee) {
                symbols.extend([names.add(callee) | (0x12 << 32), 0, 0]);
                known.push(callee);
            }
            let symbol = known.iter().position(|name| name == callee).expect("known") as u64 + 1;
            table.extend([16 * instruction, (symbol << 32) | 0x4b, 0]);
        }
        let (name, data) = (names.add(&format!(".rela.text.{name}")), bytes(&table));
        sections.push(Section { name, kind: 4, link: 2, info: section, entry_bytes: 24, data, flags: 0 });
    }
    let (name, data) = (names.add(".symtab"), bytes(&symbols));
    let symbols = Section { name, kind: 2, link: 1, info: 1, entry_bytes: 24, data, flags: 0 };
    let strings = Section { name: names.add(".strtab"), kind: 3, data: names.0, ..Section::default() };
    sections.splice(0..0, [Section::default(), strings, symbols]);

    let (mut contents, mut headers) = (Vec::new(), Vec::new());
    for Section { name, kind, flags, link, info, entry_bytes, data } in &sections {
        let place = 64 + contents.len() as u64;
        let length = data.len() as u64;
        headers.extend([name | (kind << 32), *flags, 0, place, length, link | (info << 32), 8, *entry_bytes]);
        contents.extend(data);
        contents.resize(contents.len().next_multiple_of(8), 0);
    }
    let flags = if abi >= 8 { (sm << 8) | 0x0600_0004 } else { (sm << 16) | 0x0d00 | sm };
    let table = 64 + contents.len() as u64;
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0x41, abi, 0, 0, 0, 0, 0, 0, 0];
    let counts = (64 << 16) | ((sections.len() as u64) << 32) | (1 << 48);
    file.extend(bytes(&[2 | (190 << 16) | (1 << 32), 0, 0, table, flags | (64 << 32), counts]));
    [file, contents, bytes(&headers)].concat()
}

/// An entry of a fatbin: 1 for PTX or 2 for a cubin, its architecture, its flags, and its code.
type Entry<'a> = (u64, u64, u64, &'a [u8]);

fn fatbin(entries: &[Entry]) -> Vec<u8> {
    let mut body = Vec::new();
    for &(kind, sm, flags, code) in entries {
        let length = code.len().next_multiple_of(8);
        let header = [kind | (0x101 << 16) | (64 << 32), length as u64, 0, sm << 32, 0, flags, 0, 0];
        body.extend(bytes(&header));
        body.extend(code.iter().copied().chain([0; 8]).take(length));
    }
    [bytes(&[0xba55_ed50 | (1 << 32) | (16 << 48), body.len() as u64]), body].concat()
}

/// Whether a kernel waits and triggers; an error is the reason why this is unknown.
fn instructions(image: &[u8], kernel: &str, capability: (u32, u32)) -> [Result<bool, String>; 2] {
    let GridControl { wait, trigger } = Image::from(image).grid_control(kernel, capability);
    [wait, trigger].map(|presence| match presence {
        Presence::Present => Ok(true),
        Presence::Absent => Ok(false),
        Presence::Unknown(why) => Err(why.into_owned()),
    })
}

#[track_caller]
fn assert_unknown(image: &[u8], kernel: &str, capability: (u32, u32), why: &str) {
    for found in instructions(image, kernel, capability) {
        let found = found.expect_err("unknown");
        assert!(found.contains(why), "{found}");
    }
}

#[test]
fn machine_code_is_searched() {
    for (abi, sm) in [(7, 90), (8, 90), (8, 100), (8, 121)] {
        let both = Code("both", &[NOP, ACQBULK, NOP, PREEXIT_IF_P1], &[]);
        let image = cubin(sm, abi, &[both, Code("wait", &[ACQBULK], &[]), Code("none", &[NOP, NOP], &[])]);
        assert_eq!(instructions(&image, "both", SM90), [Ok(true), Ok(true)], "{abi} {sm}");
        assert_eq!(instructions(&image, "wait", SM90), [Ok(true), Ok(false)], "{abi} {sm}");
        assert_eq!(instructions(&image, "none", SM90), [Ok(false), Ok(false)], "{abi} {sm}");
        assert_unknown(&image, "other", SM90, "no kernel `other`");
        assert_unknown(&image, "both", (8, 0), "older");
    }
    // The bits of an instruction stand elsewhere in others.
    let image = cubin(90, 8, &[Code("k", &[(ACQBULK << 16) | NOP, (ACQBULK << 12) | NOP], &[])]);
    assert_eq!(instructions(&image, "k", SM90)[0], Ok(false));
    let image = cubin(80, 7, &[Code("k", &[ACQBULK], &[])]);
    assert_eq!(instructions(&image, "k", SM90), [Ok(false), Ok(false)], "sm_80 has no such instruction");
    let image = cubin(150, 8, &[Code("k", &[ACQBULK], &[])]);
    assert_unknown(&image, "k", SM90, "sm_150 is not known");
}

#[test]
fn calls_in_machine_code_are_followed() {
    let far = [(1, "middle")];
    let image = cubin(
        90,
        8,
        &[
            Code("far", &[NOP, CALL_ABSOLUTE], &far),
            Code("middle", &[CALL_ABSOLUTE, CALL_ABSOLUTE], &[(0, "waits"), (1, "middle")]),
            Code("waits", &[ACQBULK], &[]),
            Code("plain", &[CALL_ABSOLUTE], &[(0, "leaf")]),
            Code("leaf", &[NOP], &[]),
            Code("inside", &[CALL_RELATIVE, NOP], &[]),
            Code("system", &[CALL_ABSOLUTE], &[(0, "vprintf")]),
            Code("pointer", &[PREEXIT_IF_P1, CALL_R2], &[]),
            Code("lost", &[CALL_ABSOLUTE], &[]),
        ],
    );
    assert_eq!(instructions(&image, "far", SM90), [Ok(true), Ok(false)]);
    assert_eq!(instructions(&image, "plain", SM90), [Ok(false), Ok(false)]);
    assert_eq!(instructions(&image, "inside", SM90), [Ok(false), Ok(false)]);
    assert_unknown(&image, "system", SM90, "it calls `vprintf`, which is not in the image");
    assert_unknown(&image, "lost", SM90, "through a pointer");
    let [wait, trigger] = instructions(&image, "pointer", SM90);
    assert!(wait.expect_err("unknown").contains("through a pointer"));
    assert_eq!(trigger, Ok(true), "in its own code");
}

const PTX: &str = r#"
// A comment: .entry none ( griddepcontrol.wait; {
.version 9.0
.target sm_90a
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.global .align 4 .b32 table[2] = {1, 2};
.func helper(.param .b64 p);
.visible .entry both(.param .u64 p) .maxntid 128, 1, 1
{
    .reg .pred %p<2>;
    /* griddepcontrol.launch_dependents; } */
    @%p1 griddepcontrol.wait;
    { .reg .b32 %r; }
    griddepcontrol.launch_dependents;
    ret;
}
.entry none(.param .u64 p)
{
    .pragma "griddepcontrol.wait; }";
    ret;
}
.entry calls() { { call.uni (r), middle, (p); } ret; }
.entry takes() { mov.u64 %rd1, helper; call %rd1, (p), prototype; }
.entry prints() { call (r), vprintf, (p, q); ret; }
.entry pointer() { griddepcontrol.launch_dependents; call %rd4, (p), prototype; ret; }
.func (.param .b32 r) middle (.param .b64 p) { call helper, (p); call.uni (r), middle, (p); ret; }
.func .noinline helper(.param .b64 p) { griddepcontrol.wait; ret; }
"#;

#[test]
fn ptx_is_searched() {
    let image = [PTX.as_bytes(), &[0; 3]].concat();
    assert_eq!(instructions(&image, "both", SM90), [Ok(true), Ok(true)]);
    assert_eq!(
        instructions(&image, "none", SM90),
        [Ok(false), Ok(false)],
        "comments and strings are no code"
    );
    assert_eq!(instructions(&image, "calls", SM90), [Ok(true), Ok(false)]);
    let [wait, trigger] = instructions(&image, "takes", SM90);
    assert_eq!(wait, Ok(true));
    assert!(trigger.expect_err("unknown").contains("through a pointer"));
    assert_unknown(&image, "prints", SM90, "through a pointer");
    let [wait, trigger] = instructions(&image, "pointer", SM90);
    assert!(wait.is_err() && trigger == Ok(true), "{wait:?} {trigger:?}");
    for no_kernel in ["helper", "vprintf", "other", "table"] {
        assert_unknown(&image, no_kernel, SM90, "no kernel");
    }
}

#[test]
fn the_code_that_the_driver_takes_decides() {
    const SPECIFIC: u64 = 1 << 20;
    const FAMILY: u64 = 1 << 21;
    let code = |sm, instruction| cubin(sm, 8, &[Code("k", &[instruction], &[])]);
    let (old, with, without) = (code(80, NOP), code(90, ACQBULK), code(90, NOP));
    let text = "\n.version 9.0\n.target sm_90\n.entry k() { griddepcontrol.wait; ret; }";
    let waits = |entries: &[Entry], capability| {
        let [wait, _] = instructions(&fatbin(entries), "k", capability);
        wait
    };
    let sm80: Entry = (2, 80, 0, &old);
    let ptx80: Entry = (1, 80, 1 << 15, b"compressed");
    let ptx90: Entry = (1, 90, 0, text.as_bytes());
    // Machine code is of one major number, and comes first; without it, the newest PTX is compiled.
    assert_eq!(waits(&[sm80, ptx80, (2, 90, SPECIFIC, &with)], SM90), Ok(true));
    assert_eq!(waits(&[sm80, ptx80, ptx90, (2, 90, 0, &without)], SM90), Ok(false));
    assert_eq!(waits(&[sm80, ptx80, ptx90], SM90), Ok(true));
    assert_eq!(waits(&[sm80, ptx80], SM90), Ok(false), "PTX for sm_80 has no such instruction");
    let fault = waits(&[sm80, (2, 100, 0, &with)], SM90).expect_err("nothing loads");
    assert!(fault.contains("no code for compute capability 9.0"), "{fault}");
    // Code for sm_90a is for nothing else, that for sm_100f for one major number.
    assert_eq!(waits(&[(2, 90, SPECIFIC, &without), (1, 90, SPECIFIC, b""), ptx90], (10, 0)), Ok(true));
    let family: Entry = (2, 100, FAMILY, &with);
    assert_eq!(waits(&[family, (2, 90, 0, &without)], (10, 3)), Ok(true));
    assert_eq!(waits(&[(1, 100, FAMILY, b""), ptx90], (12, 0)), Ok(true));
    // Equal candidates must agree.
    assert_eq!(waits(&[(2, 90, 0, &with), (2, 90, SPECIFIC, &with)], SM90), Ok(true));
    let fault = waits(&[(2, 90, 0, &with), (2, 90, SPECIFIC, &without)], SM90).expect_err("ambiguous");
    assert!(fault.contains("which differ"), "{fault}");
    for compressed in [1 << 13, 1 << 15] {
        let fault = waits(&[(2, 90, compressed, &with)], SM90).expect_err("compressed");
        assert!(fault.contains("nvcc --no-compress"), "{fault}");
    }
}

#[test]
fn damaged_images_are_unknown() {
    let functions = [Code("k", &[ACQBULK, CALL_ABSOLUTE], &[(1, "other")]), Code("other", &[NOP], &[])];
    let image = cubin(90, 8, &functions);
    let fat = fatbin(&[(2, 90, 0, &image)]);
    for whole in [&image, &fat, &PTX.as_bytes().to_vec()] {
        for length in 0..whole.len() {
            // Whatever is found, nothing panics, and nothing is invented.
            let [_, trigger] = instructions(&whole[..length], "k", SM90);
            assert_ne!(trigger, Ok(true), "{length} bytes");
        }
    }
    for broken in 0..image.len().min(400) {
        let mut image = image.clone();
        image[broken] ^= 0xff;
        let [_, trigger] = instructions(&image, "k", SM90);
        assert_ne!(trigger, Ok(true), "byte {broken}");
    }
    assert_unknown(&fat[..fat.len() - 8], "k", SM90, "damaged");
    assert_unknown(b"", "k", SM90, "no cubin, fatbin or PTX");
    assert_unknown(b"text", "k", SM90, "no cubin, fatbin or PTX");
    let mut host = image.clone();
    host[18] = 62;
    assert_unknown(&host, "k", SM90, "not for a GPU");
}
