"""What synthetic notes speak of: concepts of six specialties, each with the names by which hospitals know it."""

from __future__ import annotations

from dataclasses import dataclass

PROBLEM, TREATMENT, TEST = "problem", "treatment", "test"
_LETTER = {PROBLEM: "P", TREATMENT: "T", TEST: "E"}


@dataclass(frozen=True)
class Concept:
    """Something with an id; its names are interchangeable, the first one is the full name."""

    id: str
    type: str
    specialty: str
    kind: str
    """Its type; of treatments, drug or procedure."""
    names: tuple[str, ...]
    anaphors: tuple[str, ...]
    """How a note refers back to it: "the drug"."""


# A line is a concept, "|" separates its names; treatments marked with "*" are procedures, the others drugs.
# Real and invented names are mixed, as no fact about them should be known from elsewhere.
_NAMES = {
    "cardiology": {
        PROBLEM: """
            atrial fibrillation | AF | a-fib
            congestive heart failure | CHF | heart failure
            hypertension | HTN | high blood pressure
            chest pain | CP | chest discomfort
            myocardial infarction | MI | heart attack
            bradycardia | slow heart rate
            hypotension | low blood pressure
            pericardial effusion | effusion around the heart
            aortic stenosis | AS
            ventricular tachycardia | VT | v-tach
            peripheral edema | leg edema | LE swelling
            syncope | fainting spell
            mitral regurgitation | mitral leak""",
        TREATMENT: """
            metoprolol | Lopressor | BB
            furosemide | Lasix
            lisinopril | Zestril | ACE-I
            amiodarone | Cordarone
            diltiazem | Cardizem
            warfarin | Coumadin
            nitroglycerin | NTG | nitro
            belcatrol | Cardovan
            digoxin | Lanoxin
            *cardiac catheterization | cath
            *cardioversion | DCCV
            *pacemaker placement | PPM""",
        TEST: """
            echocardiogram | TTE | echo
            electrocardiogram | EKG | ECG
            troponin | trop
            stress test | treadmill test
            Holter monitor | 24-hour monitor
            BNP level | BNP""",
    },
    "pulmonology": {
        PROBLEM: """
            pneumonia | PNA | lung infection
            chronic obstructive pulmonary disease | COPD
            asthma exacerbation | asthma flare
            pulmonary embolism | PE
            pleural effusion | fluid on the lung
            shortness of breath | SOB | dyspnea
            hypoxia | low oxygen saturation
            pneumothorax | PTX | collapsed lung
            hemoptysis | bloody sputum
            respiratory failure | resp failure
            wheezing | wheeze
            pulmonary fibrosis | IPF
            productive cough | wet cough""",
        TREATMENT: """
            albuterol | Ventolin | nebs
            prednisone | Deltasone | pred
            azithromycin | Zithromax | Z-pak
            levofloxacin | Levaquin | LVX
            ipratropium | Atrovent
            tiotropium | Spiriva
            enoxaparin | Lovenox
            ceftriaxone | Rocephin | CTX
            pirolast | Airvanta
            *thoracentesis | pleural tap
            *intubation | ETT placement
            *chest tube placement | CT placement""",
        TEST: """
            chest x-ray | CXR | chest film
            chest CT | CT thorax
            arterial blood gas | ABG | gas
            pulmonary function test | PFT
            sputum culture | sputum cx
            bronchoscopy | bronch""",
    },
    "nephrology": {
        PROBLEM: """
            acute kidney injury | AKI | acute renal failure
            chronic kidney disease | CKD
            hyperkalemia | high potassium
            hyponatremia | low sodium
            metabolic acidosis | acidosis
            proteinuria | protein in the urine
            hematuria | blood in the urine
            urinary tract infection | UTI
            nephrotic syndrome | NS
            volume overload | fluid overload
            renal stone | kidney stone
            hydronephrosis | hydro
            uremia | uremic syndrome""",
        TREATMENT: """
            sevelamer | Renagel
            sodium bicarbonate | bicarb
            kayexalate | SPS
            calcitriol | Rocaltrol
            ciprofloxacin | Cipro
            tolvaptan | Samsca
            cyclosporine | Neoral | CSA
            erythropoietin | Epogen | EPO
            nefroxate | Renaltin
            *hemodialysis | HD
            *ureteral stent placement | stenting
            *kidney biopsy | renal bx""",
        TEST: """
            creatinine level | Cr | creatinine
            renal ultrasound | renal US
            urinalysis | UA
            urine culture | urine cx
            basic metabolic panel | BMP | chem-7
            CT urogram | CTU""",
    },
    "gastroenterology": {
        PROBLEM: """
            gastrointestinal bleed | GIB | GI bleed
            cirrhosis | liver cirrhosis
            acute pancreatitis | pancreatitis
            ascites | abdominal fluid
            peptic ulcer disease | PUD
            nausea | queasiness
            abdominal pain | abd pain | belly pain
            Crohn disease | CD
            cholecystitis | gallbladder infection
            hepatic encephalopathy | HE
            diarrhea | loose stool
            small bowel obstruction | SBO
            jaundice | icterus""",
        TREATMENT: """
            pantoprazole | Protonix | PPI
            octreotide | Sandostatin
            lactulose | Enulose
            ondansetron | Zofran
            metronidazole | Flagyl
            infliximab | Remicade
            spironolactone | Aldactone
            rifaximin | Xifaxan
            gastrelin | Ulcetra
            *paracentesis | para
            *cholecystectomy | CCY | gallbladder removal
            *band ligation | banding""",
        TEST: """
            upper endoscopy | EGD
            colonoscopy | c-scope
            abdominal CT | CT abd
            lipase level | lipase
            liver function panel | LFT
            stool culture | stool cx""",
    },
    "neurology": {
        PROBLEM: """
            ischemic stroke | CVA | stroke
            seizure | sz | convulsion
            migraine | migraine headache
            altered mental status | AMS | confusion
            subdural hematoma | SDH
            Parkinson disease | PD
            peripheral neuropathy | neuropathy
            meningitis | meningeal infection
            vertigo | spinning sensation
            dementia | cognitive decline
            left-sided weakness | L weakness
            tremor | shaking
            multiple sclerosis | MS""",
        TREATMENT: """
            levetiracetam | Keppra | LEV
            phenytoin | Dilantin | PHT
            sumatriptan | Imitrex
            carbidopa-levodopa | Sinemet
            gabapentin | Neurontin
            aspirin | ASA
            acyclovir | Zovirax
            donepezil | Aricept
            cerebrine | Neurolan
            *craniotomy | crani
            *lumbar drain | LD
            *thrombectomy | clot retrieval""",
        TEST: """
            head CT | CT head | NCHCT
            brain MRI | MRI brain | MRI
            electroencephalogram | EEG
            lumbar puncture | LP | spinal tap
            carotid ultrasound | carotid duplex
            nerve conduction study | NCS""",
    },
    "oncology": {
        PROBLEM: """
            breast cancer | breast ca
            lung cancer | lung ca | NSCLC
            neutropenia | low neutrophils
            anemia | low hemoglobin
            mucositis | mouth sores
            febrile neutropenia | FN
            deep venous thrombosis | DVT | leg clot
            bone metastasis | bone met
            tumor lysis syndrome | TLS
            thrombocytopenia | low platelets
            hypercalcemia | high calcium
            fatigue | exhaustion
            skin rash | rash | dermatitis""",
        TREATMENT: """
            cisplatin | Platinol | CDDP
            tamoxifen | Nolvadex
            filgrastim | Neupogen | G-CSF
            allopurinol | Zyloprim
            zoledronic acid | Zometa
            doxorubicin | Adriamycin
            cefepime | Maxipime
            pembrolizumab | Keytruda
            oncavir | Tumorex
            *mastectomy | breast removal
            *radiation therapy | XRT
            *port placement | port-a-cath""",
        TEST: """
            PET scan | PET
            complete blood count | CBC
            bone scan | scintigraphy
            mammogram | mammo
            blood culture | BCx
            leg ultrasound | LENI""",
    },
}

_ANAPHORS = {
    PROBLEM: ("this condition", "this problem", "the condition", "this complaint"),
    "drug": ("the drug", "this medication", "the agent", "this drug"),
    "procedure": ("the procedure", "this procedure", "the intervention"),
    TEST: ("the study", "this test", "the exam"),
}


def _concepts() -> dict[str, Concept]:
    concepts: dict[str, Concept] = {}
    numbers = dict.fromkeys(_LETTER, 0)
    for specialty, types in _NAMES.items():
        for type, table in types.items():
            for line in table.split("\n"):
                if not (names := line.strip()):
                    continue
                numbers[type] += 1
                kind = type if type != TREATMENT else "procedure" if names.startswith("*") else "drug"
                id = f"{_LETTER[type]}{numbers[type]:03d}"
                surfaces = tuple(name.strip() for name in names.lstrip("*").split("|"))
                concepts[id] = Concept(id, type, specialty, kind, surfaces, _ANAPHORS[kind])
    return concepts


SPECIALTIES = tuple(_NAMES)
CONCEPTS = _concepts()
