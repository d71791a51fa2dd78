"""Numbers, units, dates, times and money of eight languages, as people write them."""

import pytest

from pipeline.speech.normalize import speakable

SENTENCES = {
    "en": (
        ("It is -3 °C at 14:30.", "It is minus 3 degrees Celsius at 14 30."),
        ("At 9:05, not 10:00; 10:30 PM.", "At 9 oh 5, not 10 o'clock; 10:30 PM."),
        ("18–22 °C, 5-7 days, score 3-2.", "18 to 22 degrees Celsius, 5 to 7 days, score 3-2."),
        ("Call +1 555 123 4567.", "Call plus 1, 5 5 5, 1 2 3, 4 5 6 7."),
        ("On 1995-05-01 and July 22.", "On May 1st, 19 95 and July 22nd."),
        ("1/2 cup, ¾ l, 5 1/4 miles.",
         "half cup, three quarters liter, 5 and a quarter miles."),
        ("World War II, chapter XIV, I am.", "World War 2, chapter 14, I am."),
        ("Ratio 16:9, 1/2/2024, 3/4/5, v1.2.3.", "Ratio 16:9, 1/2/2024, 3/4/5, v1.2.3."),
    ),
    "de": (
        ("21,5 °C um 14:30 Uhr.", "21,5 Grad Celsius um 14 Uhr 30."),
        ("Um 9:05, um 1:00 Uhr.", "Um 9 Uhr 5, um ein Uhr."),
        ("Am 3. Mai, der 21. Juli.", "Am dritten Mai, der einundzwanzigste Juli."),
        ("Zum 1. Mal in der 3. Klasse.", "Zum ersten Mal in der dritten Klasse."),
        ("Am 1.5.2024, Tel. +49 30 1234.", "Am ersten Mai 2024, Tel. plus 4 9, 3 0, 1 2 3 4."),
        ("1.234,56 € für 5–7 Leute.", "1.234 Euro 56 für 5 bis 7 Leute."),
    ),
    "fr": (
        ("À 14h30, à 9 h 05 et à 1:00.", "À 14 heures 30, à 9 heures 5 et à une heure."),
        ("1 234,56 € le 01/05/2024.", "1234 euros 56 le premier mai 2024."),
        ("Le 2e étage du XXIe siècle.", "Le deuxième étage du vingt-et-unième siècle."),
        ("Le 01 23 45 67 89.", "Le 0 1, 2 3, 4 5, 6 7, 8 9."),
    ),
    "es": (
        ("A las 14:30 y a las 10:00 h.", "A las 14 y 30 y a las 10 horas."),
        ("El 01/05/2024, el siglo XXI.", "El 1 de mayo de 2024, el siglo 21."),
        ("El 1.º de 10 000 a -3 °C.", "El 1º de 10000 a menos 3 grados Celsius."),
    ),
    "it": (
        ("Alle 14:30, il 1 maggio.", "Alle 14 e 30, il primo maggio."),
        ("21,5 °C, 3 km/h, 3 milioni €.",
         "21,5 gradi Celsius, 3 chilometri all'ora, 3 milioni di euro."),
        ("Il XXI secolo, ecc.", "Il 21º secolo, eccetera."),
    ),
    "pt": (
        ("Às 14:30, à 1:00.", "Às 14 horas e 30, à uma hora."),
        ("R$ 1.234,56 e 1,5 km.", "1.234 reais 56 e 1,5 quilômetro."),
        ("Em 01/05/2024, 50 %.", "Em 1 de maio de 2024, 50 por cento."),
    ),
    "nl": (
        ("Om 14:30 uur, met 3 km/u.", "Om 14 uur 30, met 3 kilometer per uur."),
        ("€ 1.234,56 op 01-05-2024.", "1.234 euro 56 op 1 mei 2024."),
        ("De 1e, 2de en 21ste.", "De eerste, tweede en eenentwintigste."),
    ),
    "pl": (
        ("1 kg, 2 kg, 5 kg, 12 kg, 22 kg, 2,5 kg.",
         "1 kilogram, 2 kilogramy, 5 kilogramów, 12 kilogramów, 22 kilogramy, 2,5 kilograma."),
        ("3 maja i 1.05.2024, o 9:05.", "trzeciego maja i pierwszego maja 2024, o 9 zero 5."),
        ("1 234,56 zł, 5 mln zł.", "1234 złote 56, 5 milionów złotych."),
        ("XX wiek, np. -3 °C.", "dwudziesty wiek, na przykład minus 3 stopnie Celsjusza."),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("language", "written", "read"),
    [(language, *pair) for language, pairs in SENTENCES.items() for pair in pairs],
)
def test_numbers_are_worded_where_their_meaning_is_sure(
    language: str, written: str, read: str
) -> None:
    assert speakable(written, language) == read
