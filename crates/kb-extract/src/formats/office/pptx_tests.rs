use super::super::archive::{archive, relationships};
use crate::extract;
use kb_types::Mark;
use kb_types::extraction::{Extraction, Fault, File};

fn read(bytes: Vec<u8>) -> Result<Extraction, Fault> {
    extract(&File { bytes, max_text: 10_000_000, ..File::default() })
}

fn paragraph(properties: &str, text: &str) -> String {
    format!("<a:p>{properties}<a:r><a:t>{text}</a:t></a:r></a:p>")
}

fn shape(placeholder: &str, paragraphs: &str) -> String {
    format!(
        "<p:sp><p:nvSpPr><p:cNvPr id='1' name='n'/><p:nvPr>{placeholder}</p:nvPr></p:nvSpPr>
         <p:txBody><a:bodyPr/>{paragraphs}</p:txBody></p:sp>"
    )
}

fn slide(shapes: &str) -> String {
    format!("<p:sld><p:cSld><p:spTree><p:nvGrpSpPr/><p:grpSpPr/>{shapes}</p:spTree></p:cSld></p:sld>")
}

#[test]
fn slides_are_in_the_order_of_the_presentation_with_notes() {
    let first = slide(
        &(shape(
            "<p:ph type='body' idx='1'/>",
            &(paragraph("", "point") + &paragraph("<a:pPr lvl='1'/>", "deeper")),
        ) + &shape("<p:ph type='title'/>", &paragraph("", "First &amp; title"))
            + &shape("<p:ph type='sldNum'/>", &paragraph("", "17"))
            + &shape("", &(paragraph("<a:pPr><a:buAutoNum type='arabicPeriod'/></a:pPr>", "one").repeat(2)))),
    );
    let table = format!(
        "<p:graphicFrame><p:nvGraphicFramePr><p:cNvPr id='2' name='T' descr='About rivers'/></p:nvGraphicFramePr>
         <a:graphic><a:graphicData><a:tbl><a:tr><a:tc gridSpan='2'><a:txBody>{}</a:txBody></a:tc><a:tc hMerge='1'><a:txBody><a:p/></a:txBody></a:tc></a:tr>
         <a:tr><a:tc><a:txBody>{}</a:txBody></a:tc><a:tc><a:txBody>{}</a:txBody></a:tc></a:tr></a:tbl></a:graphicData></a:graphic></p:graphicFrame>
         <mc:AlternateContent><mc:Choice Requires='x'>{}</mc:Choice><mc:Fallback>{}</mc:Fallback></mc:AlternateContent>
         <p:graphicFrame><a:graphic><a:graphicData><dgm:relIds r:dm='r5'/></a:graphicData></a:graphic></p:graphicFrame>",
        paragraph("", "wide"),
        paragraph("", "a") + &paragraph("", "b"),
        paragraph("", "c"),
        shape("", &paragraph("", "once")),
        shape("", &paragraph("", "twice")),
    );
    let second = slide(&(shape("<p:ph type='ctrTitle'/>", &paragraph("", "Opening")) + &table));
    let notes = slide(
        &(shape("<p:ph type='sldImg'/>", &paragraph("", "no"))
            + &shape("<p:ph type='body'/>", &paragraph("", "say this"))),
    );
    let diagram = format!(
        "<dgm:dataModel><dgm:ptLst><dgm:pt><dgm:t><a:bodyPr/>{}</dgm:t></dgm:pt></dgm:ptLst></dgm:dataModel>",
        paragraph("", "drawn")
    );
    let bytes = archive(&[
        ("[Content_Types].xml", ""),
        ("_rels/.rels", &relationships(&[("r1", "officeDocument", "ppt/presentation.xml")])),
        ("ppt/presentation.xml", "<p:presentation><p:sldMasterIdLst><p:sldMasterId r:id='r9'/></p:sldMasterIdLst>
            <p:sldIdLst><p:sldId id='300' r:id='r2'/><p:sldId id='256' r:id='r1'/></p:sldIdLst></p:presentation>"),
        ("ppt/_rels/presentation.xml.rels", &relationships(&[("r1", "slide", "slides/slide1.xml"), ("r2", "slide", "/ppt/slides/slide2.xml")])),
        ("ppt/slides/slide1.xml", &first),
        ("ppt/slides/_rels/slide1.xml.rels", &relationships(&[("r1", "notesSlide", "../notesSlides/notesSlide1.xml")])),
        ("ppt/slides/slide2.xml", &second),
        ("ppt/slides/_rels/slide2.xml.rels", &relationships(&[("r5", "diagramData", "../diagrams/data1.xml")])),
        ("ppt/diagrams/data1.xml", &diagram),
        ("ppt/notesSlides/notesSlide1.xml", &notes),
        ("docProps/core.xml", "<cp:coreProperties><dc:title>Deck</dc:title></cp:coreProperties>"),
    ]);
    let found = read(bytes).unwrap();
    let first = "# Opening\n\nAbout rivers\n\n| wide |  |\n| a b | c |\n\nonce\n\n- drawn";
    let second = "## First & title\n\n- point\n  - deeper\n\n1. one\n2. one\n\nNotes: say this";
    assert_eq!(found.text, format!("{first}\n\n{second}"));
    let marks: Vec<(usize, Mark)> =
        found.marks.into_iter().map(|marked| (marked.offset, marked.mark)).collect();
    assert_eq!(marks, [(0, Mark::Slide(1)), (first.len() + 2, Mark::Slide(2))]);
    assert_eq!(found.title.as_deref(), Some("Deck"));
}

#[test]
fn presentations_of_pictures_and_broken_ones_are_faults() {
    let presentation = "<p:presentation><p:sldIdLst><p:sldId r:id='r1'/></p:sldIdLst></p:presentation>";
    let rels = relationships(&[("r1", "slide", "slides/slide1.xml")]);
    let mut parts = vec![
        ("[Content_Types].xml", ""),
        ("ppt/presentation.xml", presentation),
        ("ppt/_rels/presentation.xml.rels", rels.as_str()),
    ];
    assert!(matches!(read(archive(&parts)), Err(Fault::Broken(_))));
    let picture = slide("<p:pic><p:nvPicPr><p:cNvPr id='1' name='p'/></p:nvPicPr></p:pic>");
    parts.extend([("ppt/slides/slide1.xml", picture.as_str()), ("ppt/media/image1.png", "")]);
    assert_eq!(read(archive(&parts)), Err(Fault::ImagesOnly));
    let deep = slide(&"<p:grpSp>".repeat(100_000));
    parts[3].1 = &deep;
    assert!(matches!(read(archive(&parts)), Err(Fault::Broken(_))));
}
