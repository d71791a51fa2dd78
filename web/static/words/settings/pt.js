// Labels, choices and help of the settings in Portuguese, by the server's English text.

/** @type {Record<string, string>} */
export const SETTING_TEXTS = {
  "Agent ID": "Identificador do agente",
  "Answer timeout (s)": "Espera por uma resposta inteira (s)",
  "Barge in": "Interrupção ao falar",
  "Connect timeout (s)": "Espera máxima pela ligação (s)",
  "Context tokens": "Tamanho do contexto (tokens)",
  "Default instructions": "Instruções incluídas",
  Detection: "Deteção do fim",
  Eagerness: "Prontidão",
  Engine: "Motor",
  "First token timeout (s)": "Espera pelo primeiro token (s)",
  Images: "Imagens",
  Language: "Idioma",
  Languages: "Idiomas",
  "Max drafts": "Máximo de rascunhos",
  "Max output tokens": "Resposta mais longa (tokens)",
  "Max requests": "Número máximo de pedidos",
  "No speech": "Ruídos sem fala",
  "Noise reduction": "Redução de ruído",
  "Prefix padding (ms)": "Som antes da fala (ms)",
  "Silence (ms)": "Silêncio (ms)",
  "Starts thinking": "Começa a pensar",
  Strict: "Rigoroso",
  Temperature: "Temperatura",
  Thinking: "Raciocínio",
  Threshold: "Limiar",
  Token: "Token de acesso",
  "Token timeout (s)": "Espera entre tokens (s)",
  Tools: "Ferramentas",
  URL: "Endereço",
  "Unload after (s)": "Descarregar após (s)",
  Use: "Modo de controlo",
  "Verify TLS": "Verificar o certificado TLS",
  conversation: "agente de conversação",
  far_field: "distante",
  high: "alta",
  low: "baixa",
  medium: "média",
  near_field: "próximo",
  normal: "habitual",
  on: "Ligado",
  patient: "paciente",
  semantic_vad: "silêncio e palavras",
  server_vad: "só silêncio",
  strict: "rigoroso",
  tools: "agente e ferramentas",
  wake_word: "palavra de ativação ou pare",
  "Address of Home Assistant, like http://homeassistant.local:8123. Empty: the demo home is used.":
    "Endereço do Home Assistant, por exemplo http://homeassistant.local:8123. Vazio: é usada a casa de demonstração.",
  "Address of the API including its version: `http://127.0.0.1:8000/v1`.":
    "Endereço da API com a versão: `http://127.0.0.1:8000/v1`.",
  "Control of Home Assistant by a language model: by sentences to its conversation agent (conversation), or also by the tools of its MCP server, which needs an integration there (tools). Recognised commands are always sent as sentences.":
    "Como um modelo de linguagem controla o Home Assistant: com frases ao agente de conversação (agente de conversação), ou também com as ferramentas do servidor MCP, que precisa de uma integração (agente e ferramentas). Os comandos reconhecidos são sempre enviados como frases.",
  "Filter for words that were recognised in noise: off keeps all of them; normal drops those that the model itself doubts; strict also drops those that voice activity detection doubts. A request can override this with no_speech_threshold.":
    "Filtro das palavras reconhecidas no ruído: “Desligado” mantém todas; “habitual” elimina aquelas de que o próprio modelo duvida; “rigoroso” elimina também aquelas de que a deteção de voz duvida. Um pedido pode alterar isto com no_speech_threshold.",
  "Handling of the echo of an answer in the microphone, for clients without echo cancellation: none (off), the echo is cancelled (cancel), or the microphone is ignored while an answer plays (half_duplex).":
    "Tratamento do eco de uma resposta no microfone, para clientes sem cancelamento de eco: nenhum (Desligado), o eco é cancelado (Cancelar o eco), ou o microfone é ignorado enquanto uma resposta toca (Ouvir só em silêncio).",
  "How readily semantic_vad ends a turn: high is fastest, low waits longest.":
    "Rapidez com que a deteção por silêncio e palavras termina a vez: “alta” é a mais rápida, “baixa” espera mais.",
  "ISO 639-1 codes of the languages that the model understands. Empty: any.":
    "Códigos (ISO 639-1) dos idiomas que o modelo entende. Vazio: qualquer um.",
  "Id of the conversation agent in Home Assistant that receives the sentences.":
    "Identificador do agente de conversação do Home Assistant que recebe as frases.",
  "Key that the server asks for; empty: none.": "Chave que o servidor pede. Vazia: nenhuma.",
  "Language (ISO 639-1) of sessions whose client names none.":
    "Idioma (ISO 639-1) das sessões cujo cliente não indica nenhum.",
  "Language of the sentences for Home Assistant. Empty: the user's language.":
    "Idioma das frases para o Home Assistant. Vazio: o do utilizador.",
  "Long-lived access token, from the profile of the user whose rights Earshot gets.":
    "Token de acesso de longa duração, do perfil do utilizador cujos direitos o Earshot recebe.",
  "Longest answer, including thoughts; a spoken answer has 50 to 150 tokens. Never more than a quarter of the context is used: servers refuse a prompt that leaves no room for the answer.":
    "Resposta mais longa, raciocínio incluído; uma resposta falada tem de 50 a 150 tokens. Nunca é usado mais de um quarto do contexto: os servidores recusam um pedido que não deixa espaço para a resposta.",
  "Longest wait between two tokens.": "Espera máxima entre dois tokens.",
  "Longest wait for a connection.": "Espera máxima por uma ligação.",
  "Longest wait for an answer that is not streamed.":
    "Espera máxima por uma resposta que não chega aos poucos.",
  "Maximum number of answers, over all sessions, that are started before it is certain that the user has finished. Unused ones cost money with a paid language model. 0: none.":
    "Número máximo de respostas, em todas as sessões, iniciadas antes de ser certo que o utilizador acabou. As não usadas custam dinheiro com um modelo pago. 0: nenhuma.",
  "Most requests at once; a further one waits. Not set: 16, or more with many drafts.":
    "Número máximo de pedidos ao mesmo tempo; mais um espera. Sem valor: 16, ou mais com muitos rascunhos.",
  "Maximum number of tokens in one answer. Not set: no limit.":
    "Número máximo de tokens de uma resposta. Não definido: sem limite.",
  "Method of detecting the end of a turn. server_vad waits for silence_ms of silence; semantic_vad also considers the words, and waits as long as eagerness allows.":
    "Como se deteta que acabou de falar. “só silêncio” espera o silêncio definido; “silêncio e palavras” tem também em conta as palavras e espera o que a prontidão permitir.",
  "Milliseconds of audio that are kept from before the first speech frame.":
    "Milissegundos de som guardados de antes do início da fala.",
  "Milliseconds of silence that end the user's turn. A lower value is faster, but interrupts people who pause.":
    "Milissegundos de silêncio que terminam a sua vez. Um valor menor é mais rápido, mas interrompe quem faz uma pausa.",
  "Model to load at start: a folder in models_dir, its short name (tiny, large-v3-turbo), pocketsphinx, the path of a folder, or auto.":
    "Modelo carregado no arranque: uma pasta de models_dir, o seu nome curto (tiny, large-v3-turbo), pocketsphinx, o caminho de uma pasta, ou automático.",
  "Name of an engine (`earshot doctor` lists them), or auto.":
    "Nome de um motor (`earshot doctor` lista-os), ou automático.",
  "Name of its engine.": "Nome do seu motor.",
  "Name of the model; auto: the first that the server lists.":
    "Nome do modelo; auto: o primeiro que o servidor indica.",
  "Names of the tools that the language model may use. Not set: all tools.":
    "Nomes das ferramentas que o modelo de linguagem pode usar. Não definido: todas.",
  "Rate of speech of the voice; 1 is normal.": "Velocidade da voz; 1 é a normal.",
  "Reduction of steady noise before speech detection and recognition: none (off), a little, for a microphone near the mouth (near_field), or more, for one across the room (far_field).":
    "Redução do ruído constante antes do reconhecimento: nenhuma (Desligado), ligeira, para um microfone perto da boca (próximo), ou maior, para um do outro lado da divisão (distante).",
  "Sampling temperature of the language model. Not set: the engine's default.":
    "Temperatura de amostragem do modelo de linguagem. Não definida: a do motor.",
  "Sampling temperature. Not set: the server's default.":
    "Temperatura de amostragem. Não definida: a do servidor.",
  "Seconds without a use after which a model is unloaded. The default models and pinned ones stay. 0: a model stays until another one needs its memory.":
    "Segundos sem uso após os quais um modelo sai da memória. Os modelos predefinidos e os fixados ficam. 0: um modelo fica até outro precisar da sua memória.",
  "Size of the context. Not set: as the server says (vLLM, llama.cpp, Ollama), else 8192.":
    "Tamanho do contexto. Não definido: o que o servidor indica (vLLM, llama.cpp, Ollama), senão 8192.",
  "Speech probability at or above which a frame counts as speech.":
    "Probabilidade a partir da qual um fragmento de som conta como fala.",
  "Speech that interrupts an answer that is playing: any speech (on), only meaningful words (patient), only the wake word or a word that means stop (wake_word), or none (off).":
    "O que interrompe uma resposta que toca: qualquer fala (Ligado), só palavras com sentido (paciente), só a palavra de ativação ou uma como «pare» (palavra de ativação ou pare), ou nada (Desligado).",
  "System prompt of the language model. It replaces Earshot's own.":
    "Instrução de base do modelo de linguagem. Substitui a do Earshot.",
  "True: an unknown model name is an error (404) that lists the known ones. False: an unknown name means the server's default model. Names of OpenAI's service always mean the default model.":
    "Ligado: um nome de modelo desconhecido é um erro (404) que lista os conhecidos. Desligado: um nome desconhecido significa o modelo predefinido do servidor. Os nomes do serviço da OpenAI significam sempre o modelo predefinido.",
  "Voice of the answers: default, a voice, an engine, or engine/voice.":
    "Voz das respostas: automática, uma voz, um motor, ou motor/voz.",
  "Wait for the first token, retry included. A caller gives up sooner, but a cold model is slow.":
    "Espera pelo primeiro token, nova tentativa incluída. Quem espera desiste mais cedo, mas um modelo acabado de carregar é lento.",
  "Wake word, e.g. okay_nabu. Speech is ignored until it is detected. Empty: sessions listen from the start.":
    "Palavra de ativação, por exemplo okay_nabu. Até ser detetada, a fala é ignorada. Vazia: as sessões ouvem desde o início.",
  "Whether the chat template itself opens the thought. Text before `</think>` is not spoken then.":
    "Se o próprio template de chat abre o raciocínio. O texto antes de `</think>` não é então falado.",
  "Whether the language model gets Earshot's own system prompt if there is no other. It asks for short spoken answers without markdown, names the date and the room, and is written in the language of the answer.":
    "Se o modelo de linguagem recebe a instrução do Earshot quando não há outra. Pede respostas faladas curtas sem Markdown, indica a data e a divisão, e está escrita no idioma da resposta.",
  "Whether the model may call tools. Off for models that cannot.":
    "Se o modelo pode chamar ferramentas. Desligado para os modelos que não conseguem.",
  "Whether the model may think before it answers, which takes seconds if it can.":
    "Se o modelo pode raciocinar antes de responder, o que demora segundos se for capaz.",
  "Whether the model takes images, which no server announces.":
    "Se o modelo aceita imagens, o que nenhum servidor anuncia.",
  "Whether to verify the certificate of Home Assistant. False accepts any, such as a self-signed one.":
    "Se o certificado do Home Assistant é verificado. Desligado: qualquer um é aceite, mesmo autoassinado.",
};
